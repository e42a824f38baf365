"""`lograft reassign`: plans who holds what, begins it, shows how far it is, cancels it."""

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

#: Between two looks at a reassignment that is under way.
LOOK_SECONDS: Final = 0.5

Wanted = Mapping[TopicPartition, Sequence[int]]
#: The target log dir of each replica.
LogDirs = Mapping[TopicPartitionReplica, str]
#: In a reassignment file: the broker chooses the log dir.
ANY_LOG_DIR: Final = "any"


@dataclass(frozen=True, slots=True)
class Load:
    """What the cluster holds, with reassignments that are under way taken as done."""

    holdings: tuple[Holding, ...]
    racks: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class Copying:
    """How far one partition is."""

    topic: str
    partition: int
    #: What each new replica has, of what the largest old one has; None: it has not begun.
    bytes_of: Mapping[int, int | None]
    bytes_whole: int
    removing: tuple[int, ...]

    @property
    def share(self) -> float:
        """0 to 1."""
        if not self.bytes_of:
            return 1.0
        return sum(self.share_of(node) for node in self.bytes_of) / len(self.bytes_of)

    def share_of(self, node: int) -> float:
        have = self.bytes_of[node]
        if have is None:
            return 0.0
        return min(1.0, have / self.bytes_whole) if self.bytes_whole else 1.0


async def read_load(admin: Admin, topics: Collection[str] = ()) -> Load:
    brokers = (await registered_brokers(admin)).brokers
    described = await admin.describe_topics()
    if missing := sorted(set(topics) - set(described)):
        raise InvalidInput(f"there is no topic {missing[0]}")
    ongoing = await admin.list_reassignments()
    holdings = []
    for name, topic in described.items():
        if topics and name not in topics:
            continue
        for partition in topic.partitions:
            moving = ongoing.get(TopicPartition(name, partition.index))
            going = moving.removing if moving is not None else ()
            replicas = tuple(one for one in partition.replicas if one not in going)
            holdings.append(Holding(name, partition.index, replicas))
    return Load(tuple(sorted(holdings)), {one.id: one.rack for one in brokers})


async def make_plan(
    admin: Admin, *, brokers: Collection[int] = (), topics: Collection[str] = ()
) -> tuple[Load, list[Move]]:
    """`brokers`: who shall hold everything; all that are registered, if none is named."""
    load = await read_load(admin, topics)
    if unknown := sorted(set(brokers) - set(load.racks)):
        raise InvalidInput(f"broker {unknown[0]} is not registered")
    racks = {one: rack for one, rack in load.racks.items() if not brokers or one in brokers}
    return load, plan_moves(load.holdings, racks)


async def moves_to(admin: Admin, wanted: Wanted) -> tuple[Load, list[Move]]:
    """The moves that lie between what there is and what a file wants."""
    load = await read_load(admin)
    held = {TopicPartition(one.topic, one.partition): one.replicas for one in load.holdings}
    if unknown := [place for place in wanted if place not in held]:
        raise InvalidInput(f"there is no partition {unknown[0]}")
    return load, [
        Move(*place, held[place], tuple(replicas))
        for place, replicas in wanted.items()
        if tuple(replicas) != held[place]
    ]


def describe_plan(load: Load, moves: list[Move]) -> list[str]:
    if not moves:
        return ["Nothing to do: the brokers share the load as evenly as they can."]
    width = max(len(f"{move.topic}-{move.partition}") for move in moves)
    lines = [
        f"{f'{move.topic}-{move.partition}':<{width}}  {numbers(move.before)}"
        f" -> {numbers(move.after)}"
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


def plan_as_json(moves: Iterable[Move], *, before: bool = False) -> str:
    """The format of Kafka's ReassignPartitionsCommand; `before`: the way back."""
    partitions = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": list(move.before if before else move.after),
        }
        for move in moves
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1)


def wanted_from_json(text: str) -> Wanted:
    try:
        read = json.loads(text)
        return {
            TopicPartition(str(one["topic"]), int(one["partition"])): [
                int(broker) for broker in one["replicas"]
            ]
            for one in read["partitions"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"invalid reassignment JSON: {error}") from None


def log_dirs_from_json(text: str) -> LogDirs:
    """Returns the log dirs of the replicas whose log dir is not "any"."""
    found: dict[TopicPartitionReplica, str] = {}
    try:
        for one in json.loads(text)["partitions"]:
            place = TopicPartition(str(one["topic"]), int(one["partition"]))
            replicas = [int(broker) for broker in one["replicas"]]
            paths = [str(path) for path in one.get("log_dirs", [ANY_LOG_DIR] * len(replicas))]
            if len(paths) != len(replicas):
                raise InvalidInput(
                    f"Size of replicas list {replicas} is different from size of log dirs list"
                    f" {paths} for partition {place}"
                )
            for broker, path in zip(replicas, paths, strict=True):
                if path != ANY_LOG_DIR:
                    found[TopicPartitionReplica(*place, broker)] = path
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"invalid reassignment JSON: {error}") from None
    return found


def wanted_by(moves: Iterable[Move]) -> Wanted:
    return {TopicPartition(move.topic, move.partition): list(move.after) for move in moves}


# ── while it is under way ────────────────────────────────────────────────────────────────────


async def follow(admin: Admin, places: Collection[TopicPartition], progress: Progress) -> None:
    """Until none of them is under way any more."""
    while True:
        copying = [
            one
            for one in await read_copying(admin)
            if TopicPartition(one.topic, one.partition) in places
        ]
        if not copying:
            progress(len(places))
            return
        done = len(places) - len(copying) + sum(one.share for one in copying)
        progress(done, f"{len(copying)} of {len(places)} partitions to go")
        await asyncio.sleep(LOOK_SECONDS)


async def read_copying(admin: Admin) -> list[Copying]:
    """How much each new replica has, beside the largest one that was there before."""
    ongoing = await admin.list_reassignments()
    if not ongoing:
        return []
    alive = {one.id for one in (await admin.describe_cluster()).brokers}
    involved = sorted({node for one in ongoing.values() for node in one.replicas} & alive)
    directories = await admin.describe_log_dirs(involved, partitions=ongoing)
    sizes = {
        (broker, place): replica.bytes
        for broker, found in directories.items()
        for directory in found
        for place, replica in directory.replicas.items()
    }
    return [_copying(place, one, sizes) for place, one in sorted(ongoing.items())]


def _copying(
    place: TopicPartition, one: Reassignment, sizes: Mapping[tuple[int, TopicPartition], int]
) -> Copying:
    there = [node for node in one.replicas if node not in one.adding]
    return Copying(
        place.topic,
        place.partition,
        {node: sizes.get((node, place)) for node in one.adding},
        max((sizes.get((node, place), 0) for node in there), default=0),
        one.removing,
    )


def progress_lines(copying: Collection[Copying]) -> list[str]:
    if not copying:
        return ["No partition is being reassigned."]
    lines = []
    for one in copying:
        parts = [
            f"{node}: not begun"
            if one.bytes_of[node] is None
            else f"{node}: {100 * one.share_of(node):.0f} %"
            for node in one.bytes_of
        ]
        removing = f", removes {numbers(one.removing)}" if one.removing else ""
        lines.append(
            f"{one.topic}-{one.partition}  copies to {'; '.join(parts) or 'nobody'}{removing}"
        )
    return lines


def _counts(assignments: Iterable[tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for replicas in assignments:
        held.update(replicas)
        led.update(replicas[:1])
    return held, led
