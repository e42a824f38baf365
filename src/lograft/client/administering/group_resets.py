"""Moving the offsets of a group while it runs, and back.

First a plan, partition by partition; then, if it is wanted, one request to the coordinator, which
does all of it or nothing (docs/decisions/0010).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lograft.client.administering.group_offsets import (
    GroupOffset,
    commit_offsets,
    commit_topics,
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
    """Where a reset goes. One of these."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    #: From where the group stands; needs a committed offset.
    shift: int | None = None
    #: The first record from this time on (wall clock).
    from_ms: int | None = None
    #: To where it stands, within what there is.
    current: bool = False


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Of one partition, from where to where.

    plan = await admin.plan_reset("billing", Target(latest=True))
    moves: tuple[OffsetMove, ...] = plan.moves
    print([(one.topic, one.partition, one.before, one.after) for one in moves])
    """

    topic: str
    partition: int
    #: None: there is no offset.
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class ResetPlan:
    group: str
    action: ResetAction
    #: How many members will have to join again.
    members: int
    moves: tuple[OffsetMove, ...]


#: Topics, and which of their partitions; None: all of them.
Scope = Mapping[str, "set[int] | None"]


async def plan_reset(
    driver: RequestDriver, group: str, target: Target, scope: Scope | None = None
) -> ResetPlan:
    stands = await list_group_offsets(driver, group)
    description = (await describe_groups(driver, [group]))[group]
    if not description.has_consumers:
        raise WrongUse(
            f"group {group} is a {description.type} group: only offsets of classic and consumer"
            " groups can be reset"
        )
    if scope:
        places = await _choose_partitions(driver, scope)
    else:
        there = await _partitions_of(driver, {one.topic for one in {*stands, *description.readers}})
        places = [one for one in sorted({*stands, *description.readers}) if one in there]
        if not places:
            raise WrongUse(
                f"group {group} has no offsets and reads nothing; name the topics to reset"
            )
    earliest = await list_offsets(driver, dict.fromkeys(places, EARLIEST))
    latest = await list_offsets(driver, dict.fromkeys(places, LATEST))
    since = {}
    if target.from_ms is not None:
        since = await list_offsets(driver, dict.fromkeys(places, target.from_ms))
    moves = []
    for place in places:
        before = _offset(stands.get(place))
        first, end = earliest[place].offset, latest[place].offset
        found = since[place].offset if since else -1
        wanted = _wanted(target, place, before, first=first, end=end, since=found)
        moves.append(OffsetMove(*place, before, min(max(wanted, first), end)))
    return ResetPlan(group, ResetAction.RESET, len(description.members), tuple(moves))


async def plan_undo(driver: RequestDriver, group: str, scope: Scope | None = None) -> ResetPlan:
    stands = await list_group_offsets(driver, group)
    undoable = {
        place: one
        for place, one in sorted(stands.items())
        if one.reset_ms >= 0 and (not scope or _is_in(place, scope))
    }
    if not undoable:
        raise WrongUse(
            f"group {group} has no reset to undo"
            + (" there" if scope else "")
            + "; `lograft groups describe` shows offsets before resets"
        )
    last_ms = max(one.reset_ms for one in undoable.values())
    description = (await describe_groups(driver, [group]))[group]
    moves = tuple(
        OffsetMove(*place, _offset(one), None if one.before_reset < 0 else one.before_reset)
        for place, one in undoable.items()
        if one.reset_ms == last_ms
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
    moves = {
        TopicPartition(one.topic, one.partition): GroupOffset(
            -1 if one.after is None else one.after
        )
        for one in plan.moves
    }
    await commit_offsets(driver, plan.group, commit_topics(moves), plan.action)


async def _partitions_of(driver: RequestDriver, topics: Iterable[str]) -> set[TopicPartition]:
    """Of the topics that exist."""
    names = sorted(topics)

    async def send(_node: Node | None, items: Sequence[str]) -> dict[str, MetadataResponse]:
        return dict.fromkeys(items, await driver.fetch_metadata(names))

    told = (await driver.results_of([""], driver.any_node, send))[""]
    return {
        TopicPartition(topic.name or "", one.partition_index)
        for topic in told.topics
        for one in topic.partitions
    }


async def _choose_partitions(driver: RequestDriver, scope: Scope) -> list[TopicPartition]:
    there = await _partitions_of(driver, scope)
    chosen = []
    for topic, indexes in scope.items():
        known = {one.partition for one in there if one.topic == topic}
        if not known:
            raise WrongUse(f"there is no topic {topic}")
        for index in sorted(known if indexes is None else indexes):
            if index not in known:
                raise WrongUse(f"topic {topic} has no partition {index}, it has {len(known)}")
            chosen.append(TopicPartition(topic, index))
    return chosen


def _wanted(
    target: Target,
    place: TopicPartition,
    before: int | None,
    *,
    first: int,
    end: int,
    since: int,
) -> int:
    if target.earliest:
        return first
    if target.offset is not None:
        return target.offset
    if target.shift is not None:
        if before is None:
            raise WrongUse(
                f"{place} has no offset to shift; choose earliest, latest or an offset for it, or"
                " leave it out"
            )
        return before + target.shift
    if target.current and before is not None:
        return before
    if target.from_ms is not None and since >= 0:
        return since
    return end


def _is_in(place: TopicPartition, scope: Scope) -> bool:
    if place.topic not in scope:
        return False
    indexes = scope[place.topic]
    return indexes is None or place.partition in indexes


def _offset(stand: GroupOffset | None) -> int | None:
    return None if stand is None or stand.offset < 0 else stand.offset
