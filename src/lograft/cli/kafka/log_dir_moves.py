"""kafka-reassign-partitions: moves replicas to the log dirs in the reassignment JSON file."""

import asyncio
from collections.abc import Mapping
from typing import Final

from lograft.cli.reassign import LogDirs
from lograft.client.admin import Admin, TopicPartition, TopicPartitionReplica
from lograft.client.errors import BrokerError, ClientError, SomeFailed
from lograft.model.errors import ErrorCode, InvalidInput

#: Pause before retrying to move replicas that the reassignment has not created yet.
RETRY_SECONDS: Final = 0.1


async def start_moves(admin: Admin, targets: LogDirs, *, timeout_ms: int) -> None:
    """Starts the moves; retries replicas that a broker does not have yet until the reassignment
    creates them."""
    pending = dict(targets)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while pending:
        waiting = await _start(admin, pending)
        for replica in sorted(pending.keys() - waiting, key=_by_broker):
            print(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica"
                f" {replica.topic}-{replica.partition} with broker {replica.broker} "
            )
        if pending and loop.time() >= deadline:
            names = ",".join(map(str, sorted(pending, key=_by_broker)))
            plural = "s" if len(pending) > 1 else ""
            raise InvalidInput(
                f"Timed out before log directory move{plural} could be started for: {names}"
            )
        if pending:
            await asyncio.sleep(RETRY_SECONDS)


async def _start(admin: Admin, targets: LogDirs) -> set[TopicPartitionReplica]:
    """Returns the replicas that their brokers do not have yet."""
    failed: Mapping[TopicPartitionReplica, ClientError] = {}
    try:
        await admin.alter_replica_log_dirs(targets)
    except SomeFailed as error:
        failed = error.failed
    except BrokerError as error:
        failed = dict.fromkeys(targets, error)
    for replica, reason in failed.items():
        if not isinstance(reason, BrokerError) or reason.code != ErrorCode.REPLICA_NOT_AVAILABLE:
            raise InvalidInput(f"Failed to alter dir for {replica}: {reason}")
    return set(failed)


async def report_moves(admin: Admin, targets: LogDirs) -> bool:
    """Prints the state of each move; returns whether all have completed or were cancelled."""
    held = await _find_log_dirs(admin, targets)
    for replica in sorted(targets, key=_by_broker):
        print(_describe_state(replica, targets[replica], *held[replica]))
    return all(current is not None and future is None for current, future in held.values())


def _describe_state(
    replica: TopicPartitionReplica, target: str, current: str | None, future: str | None
) -> str:
    name = f"{replica.topic}-{replica.partition}"
    if current is None:
        return (
            f"Partition {name} is not found in any live log dir on broker {replica.broker}. There"
            " is likely an offline log directory on the broker."
        )
    if future == target:
        return f"Reassignment of replica {replica} is still in progress."
    if future is not None:
        return (
            f"Partition {name} on broker {replica.broker} is being moved to log dir {future}"
            f" instead of {target}."
        )
    if current == target:
        return f"Reassignment of replica {replica} completed successfully."
    return (
        f"Partition {name} on broker {replica.broker} is not being moved from log dir {current} to"
        f" {target}."
    )


async def cancel_moves(admin: Admin, targets: LogDirs, *, timeout_ms: int) -> None:
    """Cancels moves by moving replicas to their current log dirs."""
    held = await _find_log_dirs(admin, targets)
    moving = {
        replica: current
        for replica, (current, future) in held.items()
        if current is not None and future is not None
    }
    if moving:
        await start_moves(admin, moving, timeout_ms=timeout_ms)
    else:
        print("None of the specified partition moves are active.")


async def _find_log_dirs(
    admin: Admin, targets: LogDirs
) -> dict[TopicPartitionReplica, tuple[str | None, str | None]]:
    """Returns each replica's current log dir and the one to which it is being moved."""
    current: dict[TopicPartitionReplica, str] = {}
    future: dict[TopicPartitionReplica, str] = {}
    if targets:
        brokers = sorted({replica.broker for replica in targets})
        partitions = {TopicPartition(replica.topic, replica.partition) for replica in targets}
        described = await admin.describe_log_dirs(brokers, partitions=partitions)
        for broker, directories in described.items():
            for directory in directories:
                for partition, replica in directory.replicas.items():
                    paths = future if replica.is_future else current
                    paths[TopicPartitionReplica(*partition, broker)] = directory.path
    return {replica: (current.get(replica), future.get(replica)) for replica in targets}


def _by_broker(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    """Sort key: the order in which Kafka's tool lists replicas."""
    return replica.broker, replica.topic, replica.partition
