"""`lograft reassign`: plans who holds what, begins it, shows how far it is, cancels it."""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from lograft.cli.asking import Asks
from lograft.metadata.rebalancing import Holding, Move, plan_moves
from lograft.model.errors import ErrorCode, InvalidInput, LograftError
from lograft.model.seams import Address
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lograft.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse

METADATA: Final = 12
DESCRIBE_CLUSTER: Final = 2
ALTER: Final = 0
LIST: Final = 0
DESCRIBE_LOG_DIRS: Final = 4
#: Partitions in one request.
CHUNK: Final = 1_000

Wanted = dict[tuple[str, int], list[int] | None]
Ongoing = dict[tuple[str, int], OngoingPartitionReassignment]


class ReassignmentRefused(LograftError):
    """The cluster does not take some of it."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the cluster holds, with reassignments that are under way taken as done."""

    holdings: tuple[Holding, ...]
    racks: dict[int, str | None]
    addresses: dict[int, Address]


async def read_load(ask: Asks, topics: Collection[str] = ()) -> Load:
    cluster = await ask(
        DescribeClusterRequest(include_fenced_brokers=True),
        DESCRIBE_CLUSTER,
        DescribeClusterResponse,
    )
    metadata = await ask(
        MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA, MetadataResponse
    )
    ongoing = await read_ongoing(ask)
    holdings = []
    for topic in metadata.topics:
        if topic.name is None or (topics and topic.name not in topics):
            continue
        for partition in topic.partitions:
            moving = ongoing.get((topic.name, partition.partition_index))
            going = moving.removing_replicas if moving is not None else ()
            holdings.append(
                Holding(
                    topic.name,
                    partition.partition_index,
                    tuple(r for r in partition.replica_nodes if r not in going),
                )
            )
    holdings.sort()
    if missing := sorted(set(topics) - {topic.name for topic in metadata.topics}):
        raise InvalidInput(f"there is no topic {missing[0]}")
    return Load(
        tuple(holdings),
        {broker.broker_id: broker.rack for broker in cluster.brokers},
        {broker.broker_id: Address(broker.host, broker.port) for broker in cluster.brokers},
    )


async def read_ongoing(ask: Asks) -> Ongoing:
    answer = await ask(
        ListPartitionReassignmentsRequest(topics=None), LIST, ListPartitionReassignmentsResponse
    )
    _check(answer.error_code, answer.error_message)
    return {
        (topic.name, partition.partition_index): partition
        for topic in answer.topics
        for partition in topic.partitions
    }


async def make_plan(
    ask: Asks, *, brokers: Collection[int] = (), topics: Collection[str] = ()
) -> tuple[Load, list[Move]]:
    """`brokers`: who shall hold everything; all that are registered, if none is named."""
    load = await read_load(ask, topics)
    if unknown := sorted(set(brokers) - set(load.racks)):
        raise InvalidInput(f"broker {unknown[0]} is not registered")
    racks = {b: rack for b, rack in load.racks.items() if not brokers or b in brokers}
    return load, plan_moves(load.holdings, racks)


def describe_plan(load: Load, moves: list[Move]) -> list[str]:
    if not moves:
        return ["Nothing to do: the brokers share the load as evenly as they can."]
    width = max(len(f"{move.topic}-{move.partition}") for move in moves)
    lines = [
        f"{f'{move.topic}-{move.partition}':<{width}}  {_list(move.before)} -> {_list(move.after)}"
        for move in moves
    ]
    total = sum(len(holding.replicas) for holding in load.holdings)
    copies = sum(move.copies for move in moves)
    lines += ["", f"{copies} of {total} replicas are copied, in {len(moves)} partitions.", ""]
    after = {(one.topic, one.partition): one.replicas for one in load.holdings}
    held_before, led_before = _counts(after.values())
    after.update({(move.topic, move.partition): move.after for move in moves})
    held, led = _counts(after.values())
    lines.append(f"{'broker':<8}{'replicas':<20}leaders")
    for broker_id in sorted({*load.racks, *held_before}):
        replicas = f"{held_before[broker_id]} -> {held[broker_id]}"
        lines.append(f"{broker_id:<8}{replicas:<20}{led_before[broker_id]} -> {led[broker_id]}")
    return lines


def plan_as_json(moves: Iterable[Move]) -> str:
    """The format of Kafka's ReassignPartitionsCommand."""
    partitions = [
        {"topic": move.topic, "partition": move.partition, "replicas": list(move.after)}
        for move in moves
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1)


def wanted_from_json(text: str) -> Wanted:
    try:
        read = json.loads(text)
        return {
            (str(one["topic"]), int(one["partition"])): [int(b) for b in one["replicas"]]
            for one in read["partitions"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"this is no reassignment as JSON: {error}") from None


async def begin(ask: Asks, wanted: Wanted) -> int:
    """Begins, or with None for replicas cancels; returns how many partitions were taken."""
    refused = []
    items = list(wanted.items())
    for start in range(0, len(items), CHUNK):
        by_topic: dict[str, list[ReassignablePartition]] = {}
        for (topic, partition), replicas in items[start : start + CHUNK]:
            by_topic.setdefault(topic, []).append(
                ReassignablePartition(partition_index=partition, replicas=replicas)
            )
        answer = await ask(
            AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(name=name, partitions=partitions)
                    for name, partitions in by_topic.items()
                ]
            ),
            ALTER,
            AlterPartitionReassignmentsResponse,
        )
        _check(answer.error_code, answer.error_message)
        refused += [
            f"{topic.name}-{one.partition_index}: {one.error_message or _name(one.error_code)}"
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code
        ]
    if refused:
        raise ReassignmentRefused(
            f"{len(refused)} of {len(items)} partitions were not taken; {refused[0]}"
        )
    return len(items)


async def describe_progress(ask: Asks) -> list[str]:
    """How much each new replica has, beside the largest one that was there before."""
    ongoing = await read_ongoing(ask)
    if not ongoing:
        return ["No partition is being reassigned."]
    load = await read_load(ask)
    involved = sorted({b for one in ongoing.values() for b in one.replicas if b in load.addresses})
    sizes = {b: await _sizes(ask, load.addresses[b], ongoing) for b in involved}
    lines = []
    for (topic, partition), one in sorted(ongoing.items()):
        there = [b for b in one.replicas if b not in one.adding_replicas]
        whole = max((sizes.get(b, {}).get((topic, partition), 0) for b in there), default=0)
        parts = []
        for b in one.adding_replicas:
            have = sizes.get(b, {}).get((topic, partition))
            if have is None:
                parts.append(f"{b}: not begun")
            else:
                parts.append(f"{b}: {min(100, 100 * have // whole) if whole else 100} %")
        removing = f", removes {_list(one.removing_replicas)}" if one.removing_replicas else ""
        lines.append(f"{topic}-{partition}  copies to {'; '.join(parts) or 'nobody'}{removing}")
    return lines


async def _sizes(ask: Asks, at: Address, ongoing: Ongoing) -> dict[tuple[str, int], int]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in ongoing:
        by_topic.setdefault(topic, []).append(partition)
    answer = await ask(
        DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ]
        ),
        DESCRIBE_LOG_DIRS,
        DescribeLogDirsResponse,
        at=at,
    )
    return {
        (topic.name, one.partition_index): one.partition_size
        for result in answer.results
        for topic in result.topics
        for one in topic.partitions
    }


def _counts(assignments: Iterable[tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for replicas in assignments:
        held.update(replicas)
        led.update(replicas[:1])
    return held, led


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _check(code: int, message: str | None) -> None:
    if code:
        raise ReassignmentRefused(message or _name(code))


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
