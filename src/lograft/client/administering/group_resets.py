"""Resets the offsets of a group, also while it has members, and undoes a reset.

A plan contains the new offset of each partition. It is executed by one request to the coordinator,
which applies all of it or nothing (docs/decisions/0010).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lograft.client.administering.group_offsets import (
    GroupOffset,
    build_commit_topics,
    commit_offsets,
    list_group_offsets,
)
from lograft.client.administering.groups import describe_groups
from lograft.client.administering.partitions import (
    EARLIEST,
    LATEST,
    list_offsets,
)
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.errors import WrongUse
from lograft.client.network import Node
from lograft.model.types import ResetAction, TopicPartition
from lograft.wire.messages.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reset: one of these fields."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    #: Relative to the committed offset, which must exist.
    shift: int | None = None
    #: The first record with at least this timestamp.
    from_ms: int | None = None
    #: The committed offset, moved into the range of the log.
    current: bool = False


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """The change of one partition.

    plan = await admin.plan_reset("billing", Target(latest=True))
    moves: tuple[OffsetMove, ...] = plan.moves
    print([(move.topic, move.partition, move.before, move.after) for move in moves])
    """

    topic: str
    partition: int
    #: None: no committed offset.
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class ResetPlan:
    group: str
    action: ResetAction
    #: The number of members, which have to rejoin.
    members: int
    moves: tuple[OffsetMove, ...]


#: Topics and some of their partitions; None: all partitions.
Scope = Mapping[str, "set[int] | None"]


async def plan_reset(
    driver: RequestDriver, group: str, target: Target, scope: Scope | None = None
) -> ResetPlan:
    committed = await list_group_offsets(driver, group)
    description = (await describe_groups(driver, [group]))[group]
    if not description.has_consumers:
        raise WrongUse(
            f"group {group} is a {description.type} group: only the offsets of classic and"
            " consumer groups can be reset"
        )
    if scope:
        partitions = await _choose_partitions(driver, scope)
    else:
        used = sorted({*committed, *description.owners})
        existing = await _existing_partitions(driver, {partition.topic for partition in used})
        partitions = [partition for partition in used if partition in existing]
        if not partitions:
            raise WrongUse(
                f"group {group} has no committed offsets and no assigned partitions; specify the"
                " topics to reset"
            )
    earliest = await list_offsets(driver, dict.fromkeys(partitions, EARLIEST))
    latest = await list_offsets(driver, dict.fromkeys(partitions, LATEST))
    by_time = {}
    if target.from_ms is not None:
        by_time = await list_offsets(driver, dict.fromkeys(partitions, target.from_ms))
    moves = []
    for partition in partitions:
        before = _offset_of(committed.get(partition))
        first, end = earliest[partition].offset, latest[partition].offset
        found = by_time[partition].offset if by_time else -1
        offset = _target_offset(target, partition, before, first=first, end=end, by_time=found)
        moves.append(OffsetMove(*partition, before, min(max(offset, first), end)))
    return ResetPlan(group, ResetAction.RESET, len(description.members), tuple(moves))


async def plan_undo(driver: RequestDriver, group: str, scope: Scope | None = None) -> ResetPlan:
    committed = await list_group_offsets(driver, group)
    undoable = {
        partition: offset
        for partition, offset in sorted(committed.items())
        if offset.reset_ms >= 0 and (not scope or _is_in_scope(partition, scope))
    }
    if not undoable:
        raise WrongUse(
            f"group {group} has no reset to undo"
            + (" in these topics" if scope else "")
            + "; `lograft groups describe` shows the offsets before resets"
        )
    last_ms = max(offset.reset_ms for offset in undoable.values())
    description = (await describe_groups(driver, [group]))[group]
    moves = tuple(
        OffsetMove(
            *partition, _offset_of(offset), None if offset.before_reset < 0 else offset.before_reset
        )
        for partition, offset in undoable.items()
        if offset.reset_ms == last_ms
    )
    return ResetPlan(group, ResetAction.UNDO, len(description.members), moves)


async def reset_offsets(
    driver: RequestDriver, group: str, target: Target, scope: Scope | None = None
) -> ResetPlan:
    plan = await plan_reset(driver, group, target, scope)
    await execute_reset(driver, plan)
    return plan


async def undo_reset(driver: RequestDriver, group: str, scope: Scope | None = None) -> ResetPlan:
    plan = await plan_undo(driver, group, scope)
    await execute_reset(driver, plan)
    return plan


async def execute_reset(driver: RequestDriver, plan: ResetPlan) -> None:
    offsets = {
        TopicPartition(move.topic, move.partition): GroupOffset(
            -1 if move.after is None else move.after
        )
        for move in plan.moves
    }
    await commit_offsets(driver, plan.group, build_commit_topics(offsets), plan.action)


async def _existing_partitions(driver: RequestDriver, topics: Iterable[str]) -> set[TopicPartition]:
    """Returns the partitions of the topics that exist."""
    names = sorted(topics)

    async def send(_node: Node | None, items: Sequence[str]) -> dict[str, MetadataResponse]:
        return dict.fromkeys(items, await driver.fetch_metadata(names))

    metadata = (await driver.results_of([""], driver.any_node, send))[""]
    return {
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in metadata.topics
        for partition in topic.partitions
    }


async def _choose_partitions(driver: RequestDriver, scope: Scope) -> list[TopicPartition]:
    existing = await _existing_partitions(driver, scope)
    chosen = []
    for topic, indexes in scope.items():
        known = {partition.partition for partition in existing if partition.topic == topic}
        if not known:
            raise WrongUse(f"topic {topic} does not exist")
        for index in sorted(known if indexes is None else indexes):
            if index not in known:
                raise WrongUse(
                    f"topic {topic} has {len(known)} partitions, so there is no partition {index}"
                )
            chosen.append(TopicPartition(topic, index))
    return chosen


def _target_offset(
    target: Target,
    partition: TopicPartition,
    before: int | None,
    *,
    first: int,
    end: int,
    by_time: int,
) -> int:
    if target.earliest:
        return first
    if target.offset is not None:
        return target.offset
    if target.shift is not None:
        if before is None:
            raise WrongUse(
                f"{partition} has no committed offset to shift; use earliest, latest or an offset,"
                " or exclude it"
            )
        return before + target.shift
    if target.current and before is not None:
        return before
    if target.from_ms is not None and by_time >= 0:
        return by_time
    return end


def _is_in_scope(partition: TopicPartition, scope: Scope) -> bool:
    if partition.topic not in scope:
        return False
    indexes = scope[partition.topic]
    return indexes is None or partition.partition in indexes


def _offset_of(committed: GroupOffset | None) -> int | None:
    return None if committed is None or committed.offset < 0 else committed.offset
