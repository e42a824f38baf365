"""`lograft reassign`: plans reassignments and shows their progress."""

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lograft.cli.cluster import registered_brokers
from lograft.cli.output import numbers
from lograft.cli.progress import Progress
from lograft.client.admin import Admin, Reassignment, TopicPartition, TopicPartitionReplica
from lograft.metadata.rebalancing import Holding, Move, plan_moves
from lograft.model.errors import InvalidInput

#: Interval at which the progress of reassignments is read.
POLL_SECONDS: Final = 0.5

#: The replicas that each partition should have.
TargetReplicas = Mapping[TopicPartition, Sequence[int]]
#: The target log dir of each replica.
LogDirs = Mapping[TopicPartitionReplica, str]
#: In a reassignment file: the broker chooses the log dir.
ANY_LOG_DIR: Final = "any"


@dataclass(frozen=True, slots=True)
class Load:
    """The replicas of partitions, as if all reassignments in progress had completed."""

    holdings: tuple[Holding, ...]
    racks: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """The progress of a partition's reassignment."""

    topic: str
    partition: int
    #: Size of each new replica; None if it does not exist yet.
    bytes_of: Mapping[int, int | None]
    #: Size of the largest existing replica.
    bytes_whole: int
    removing: tuple[int, ...]

    @property
    def share(self) -> float:
        """The fraction of the data that has been copied."""
        if not self.bytes_of:
            return 1.0
        return sum(self.share_of(node) for node in self.bytes_of) / len(self.bytes_of)

    def share_of(self, node: int) -> float:
        copied = self.bytes_of[node]
        if copied is None:
            return 0.0
        return min(1.0, copied / self.bytes_whole) if self.bytes_whole else 1.0


async def read_load(admin: Admin, topics: Collection[str] = ()) -> Load:
    brokers = (await registered_brokers(admin)).brokers
    described = await admin.describe_topics()
    if missing := sorted(set(topics) - set(described)):
        raise InvalidInput(
            f"topic {missing[0]} does not exist: `lograft topics list` shows all topics"
        )
    ongoing = await admin.list_reassignments()
    holdings = []
    for name, topic in described.items():
        if topics and name not in topics:
            continue
        for partition in topic.partitions:
            reassignment = ongoing.get(TopicPartition(name, partition.index))
            removing = reassignment.removing if reassignment is not None else ()
            replicas = tuple(node for node in partition.replicas if node not in removing)
            holdings.append(Holding(name, partition.index, replicas))
    return Load(tuple(sorted(holdings)), {broker.id: broker.rack for broker in brokers})


async def make_plan(
    admin: Admin, *, brokers: Collection[int] = (), topics: Collection[str] = ()
) -> tuple[Load, list[Move]]:
    """Plans an even distribution over `brokers`; by default, over all registered brokers."""
    load = await read_load(admin, topics)
    if unknown := sorted(set(brokers) - set(load.racks)):
        raise InvalidInput(
            f"broker {unknown[0]} is not registered: `lograft cluster describe` shows all brokers"
        )
    racks = {node: rack for node, rack in load.racks.items() if not brokers or node in brokers}
    return load, plan_moves(load.holdings, racks)


async def compare_with_target(admin: Admin, target: TargetReplicas) -> tuple[Load, list[Move]]:
    """Returns the current replicas and the moves that lead to the target."""
    load = await read_load(admin)
    current = {
        TopicPartition(holding.topic, holding.partition): holding.replicas
        for holding in load.holdings
    }
    if unknown := [partition for partition in target if partition not in current]:
        raise InvalidInput(f"partition {unknown[0]} does not exist")
    return load, [
        Move(*partition, current[partition], tuple(replicas))
        for partition, replicas in target.items()
        if tuple(replicas) != current[partition]
    ]


def describe_plan(load: Load, moves: list[Move]) -> list[str]:
    if not moves:
        return ["Nothing to do: the replicas are already evenly distributed."]
    width = max(len(f"{move.topic}-{move.partition}") for move in moves)
    lines = [
        f"{f'{move.topic}-{move.partition}':<{width}}  {numbers(move.before)}"
        f" -> {numbers(move.after)}"
        for move in moves
    ]
    total = sum(len(holding.replicas) for holding in load.holdings)
    copies = sum(move.copies for move in moves)
    lines += ["", f"{copies} of {total} replicas will be copied, in {len(moves)} partitions.", ""]
    after = {(holding.topic, holding.partition): holding.replicas for holding in load.holdings}
    held_before, led_before = _count_replicas(after.values())
    after.update({(move.topic, move.partition): move.after for move in moves})
    held, led = _count_replicas(after.values())
    lines.append(f"{'broker':<8}{'replicas':<20}leaders")
    for broker_id in sorted({*load.racks, *held_before}):
        replicas = f"{held_before[broker_id]} -> {held[broker_id]}"
        lines.append(f"{broker_id:<8}{replicas:<20}{led_before[broker_id]} -> {led[broker_id]}")
    return lines


def plan_as_json(moves: Iterable[Move], *, before: bool = False) -> str:
    """Formats a plan as a reassignment JSON file of Kafka; `before` selects the replicas before the
    moves, for a rollback."""
    partitions = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": list(move.before if before else move.after),
        }
        for move in moves
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1)


def parse_target(text: str) -> TargetReplicas:
    """Parses a reassignment JSON file of Kafka."""
    try:
        return {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): [
                int(broker) for broker in entry["replicas"]
            ]
            for entry in json.loads(text)["partitions"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"invalid reassignment JSON: {error}") from None


def parse_log_dirs(text: str) -> LogDirs:
    """Returns the log dirs of the replicas whose log dir is not "any"."""
    found: dict[TopicPartitionReplica, str] = {}
    try:
        for entry in json.loads(text)["partitions"]:
            partition = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            replicas = [int(broker) for broker in entry["replicas"]]
            paths = [str(path) for path in entry.get("log_dirs", [ANY_LOG_DIR] * len(replicas))]
            if len(paths) != len(replicas):
                raise InvalidInput(
                    f"Size of replicas list {replicas} is different from size of log dirs list"
                    f" {paths} for partition {partition}"
                )
            for broker, path in zip(replicas, paths, strict=True):
                if path != ANY_LOG_DIR:
                    found[TopicPartitionReplica(*partition, broker)] = path
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"invalid reassignment JSON: {error}") from None
    return found


def target_of(moves: Iterable[Move]) -> TargetReplicas:
    return {TopicPartition(move.topic, move.partition): list(move.after) for move in moves}


# ── progress ─────────────────────────────────────────────────────────────────────────────────


async def wait_reassigned(
    admin: Admin, partitions: Collection[TopicPartition], progress: Progress
) -> None:
    """Waits until no reassignment of the partitions is in progress."""
    while True:
        copies = [
            copy
            for copy in await read_copies(admin)
            if TopicPartition(copy.topic, copy.partition) in partitions
        ]
        if not copies:
            progress(len(partitions))
            return
        done = len(partitions) - len(copies) + sum(copy.share for copy in copies)
        progress(done, f"{len(copies)} of {len(partitions)} partitions remaining")
        await asyncio.sleep(POLL_SECONDS)


async def read_copies(admin: Admin) -> list[PartitionCopy]:
    """Returns the progress of all reassignments: the size of each new replica compared with the
    largest existing one."""
    ongoing = await admin.list_reassignments()
    if not ongoing:
        return []
    online = {broker.id for broker in (await admin.describe_cluster()).brokers}
    replicas = {node for reassignment in ongoing.values() for node in reassignment.replicas}
    log_dirs_of = await admin.describe_log_dirs(sorted(replicas & online), partitions=ongoing)
    sizes = {
        (broker, partition): replica.bytes
        for broker, log_dirs in log_dirs_of.items()
        for log_dir in log_dirs
        for partition, replica in log_dir.replicas.items()
    }
    return [
        _copy_of(partition, reassignment, sizes)
        for partition, reassignment in sorted(ongoing.items())
    ]


def _copy_of(
    partition: TopicPartition,
    reassignment: Reassignment,
    sizes: Mapping[tuple[int, TopicPartition], int],
) -> PartitionCopy:
    existing = [node for node in reassignment.replicas if node not in reassignment.adding]
    return PartitionCopy(
        partition.topic,
        partition.partition,
        {node: sizes.get((node, partition)) for node in reassignment.adding},
        max((sizes.get((node, partition), 0) for node in existing), default=0),
        reassignment.removing,
    )


def progress_lines(copies: Collection[PartitionCopy]) -> list[str]:
    if not copies:
        return ["No reassignments in progress."]
    lines = []
    for copy in copies:
        parts = [
            f"{node}: not started"
            if copy.bytes_of[node] is None
            else f"{node}: {100 * copy.share_of(node):.0f} %"
            for node in copy.bytes_of
        ]
        adding = f"  adding {', '.join(parts)}" if parts else ""
        removing = f"  removing {numbers(copy.removing)}" if copy.removing else ""
        lines.append(f"{copy.topic}-{copy.partition}{adding}{removing}")
    return lines


def _count_replicas(assignments: Iterable[tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
    """Returns the number of replicas and of preferred leaders on each broker."""
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for replicas in assignments:
        held.update(replicas)
        led.update(replicas[:1])
    return held, led
