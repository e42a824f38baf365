"""`lograft topics` in words: who holds what, in which mode, and how far each replica is."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from lograft.cli.output import NOTHING, count, number, numbers, table
from lograft.client.admin import (
    Admin,
    PartitionDescription,
    TopicDescription,
    TopicGroups,
    TopicListing,
    TopicPartition,
)
from lograft.client.errors import BrokerError, ClientError, SomeFailed
from lograft.model.errors import ErrorCode
from lograft.model.types import ReplicationMode
from lograft.model.uuids import uuid_to_text

UNKNOWN: Final = "?"
POINT_TO_POINT: Final = "ptp"
ELECTION_ATTEMPTS_MAX: Final = 5


def list_lines(topics: Sequence[TopicListing]) -> list[str]:
    if not topics:
        return ["There is no topic; `lograft topics create NAME` makes one."]
    return table(
        ["TOPIC", "PARTITIONS", "ID"],
        ((one.name, str(one.partitions), uuid_to_text(one.id)) for one in topics),
    )


def describe_lines(topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    for name, topic in sorted(topics.items()):
        for partition in topic.partitions:
            yield from _partition_lines(name, partition)


def _partition_lines(name: str, partition: PartitionDescription) -> Iterator[str]:
    line = (
        f"{name}-{partition.index}  {partition.mode.text}  leader {partition.leader} in epoch"
        f" {partition.leader_epoch}  in sync {numbers(partition.isr)}"
    )
    if partition.eligible_leaders:
        line += f"  eligible {numbers(partition.eligible_leaders)}"
    if partition.high_watermark >= 0:
        line += f"  committed {partition.high_watermark}"
    yield line
    if partition.mode_reason:
        yield f"    on its way to {partition.wished_mode.text}: {partition.mode_reason}"
    if not partition.states:
        yield f"    replicas {numbers(partition.replicas)}"
    for one in partition.states:
        has = UNKNOWN
        if one.end_offset >= 0:
            has = f"{one.start_offset} to {one.end_offset}, lag {one.lag}"
        yield (
            f"    replica {one.node}  {has}  last fetch {_age(one.last_fetch_age_ms)}"
            f"  caught up {_age(one.caught_up_age_ms)}"
        )


def _age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms / 1000:.1f} s ago"


def groups_lines(topics: Mapping[str, TopicGroups]) -> Iterator[str]:
    for place, (name, topic) in enumerate(sorted(topics.items())):
        if place:
            yield ""
        yield f"{name}  {_subscription(topic)}"
        if not topic.groups:
            yield "No group has members or committed offsets in this topic."
            continue
        yield ""
        yield from table(
            ["GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", "ASSIGNED BY"],
            (
                (
                    one.group,
                    one.type,
                    one.state,
                    str(one.members),
                    str(len(one.partitions)),
                    number(one.lag),
                    (one.assignor or NOTHING) if one.members else NOTHING,
                )
                for one in topic.groups
            ),
        )


def _subscription(topic: TopicGroups) -> str:
    if topic.mode != POINT_TO_POINT:
        return f"subscription mode {topic.mode}: any number of groups"
    if topic.owner is None:
        return f"subscription mode {topic.mode}: one group, the first that subscribes"
    return f"subscription mode {topic.mode}: only group {topic.owner}"


async def choose_leader(
    admin: Admin, partitions: Sequence[TopicPartition], leader: int
) -> dict[TopicPartition, bool]:
    """Makes a broker the leader; returns whether each partition got a new leader. In raft mode
    another voter may win the election after the leader resigns, so partitions that can still
    succeed are retried."""
    outcomes: dict[TopicPartition, bool] = {}
    pending = list(partitions)
    attempts = 0
    while True:
        attempts += 1
        try:
            found = await admin.elect_leaders(partitions=pending, leader=leader)
        except SomeFailed as error:
            failed, done = error.failed, error.done
        except BrokerError as error:
            failed, done = {pending[0]: error}, {}
        else:
            return outcomes | {place: attempts > 1 or new for place, new in found.items()}
        outcomes |= {place: attempts > 1 or new for place, new in done.items()}
        if attempts == ELECTION_ATTEMPTS_MAX or not await _may_succeed(admin, failed, leader):
            raise SomeFailed(outcomes, failed) if outcomes else next(iter(failed.values()))
        pending = list(failed)


async def _may_succeed(
    admin: Admin, failed: Mapping[TopicPartition, ClientError], leader: int
) -> bool:
    topics = await admin.describe_topics({place.topic for place in failed})
    for place, error in failed.items():
        partition = topics[place.topic].partitions[place.partition]
        is_passing = (
            isinstance(error, BrokerError)
            and error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            and partition.mode is ReplicationMode.RAFT
            and leader in partition.isr
        )
        if not is_passing:
            return False
    return True


def election_summary(found: Mapping[TopicPartition, bool], leader: int | None) -> str:
    """`found`: whether each partition got a new leader."""
    elected = sum(found.values())
    kept = len(found) - elected
    if leader is None:
        text = f"Elected {count(elected, 'leader')}"
        return f"{text}; {count(kept, 'partition')} needed no election."
    text = f"Broker {leader} now leads {count(elected, 'partition')}"
    return f"{text}; it already led {count(kept, 'partition')}."


async def alter(
    admin: Admin,
    topic: str,
    *,
    partitions: Collection[int],
    mode: str | None,
    replicas: int | None,
    partition_count: int | None,
) -> list[str]:
    """What was changed, in sentences."""
    said = []
    if partition_count is not None:
        await admin.create_partitions({topic: partition_count})
        said.append(f"{topic}: {count(partition_count, 'partition')} from now on.")
    if mode is not None or replicas is not None:
        await admin.alter_replication(
            topic,
            mode="raft" if mode == "raft" else None if mode is None else "isr",
            replicas=replicas,
            partitions=partitions,
        )
        what = [f"replication by {mode}"] if mode is not None else []
        what += [count(replicas, "replica")] if replicas else []
        where = f"partitions {numbers(sorted(partitions))} of {topic}" if partitions else topic
        said.append(
            f"{where}: {' and '.join(what)} from now on; `lograft topics describe` shows how far."
        )
    return said
