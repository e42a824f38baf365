"""Moving the offsets of a group while it runs, and back.

First a plan, partition by partition; then, if it is wanted, one request to the coordinator, which
does all of it or nothing (docs/decisions/0010).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lograft.client.administering.group_offsets import (
    GroupOffset,
    GroupOffsetsPart,
    commit_topics,
)
from lograft.client.administering.partitions import (
    EARLIEST,
    LATEST,
)
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


class GroupResetsPart(GroupOffsetsPart):
    async def plan_reset(self, group: str, target: Target, scope: Scope | None = None) -> ResetPlan:
        """What `reset_offsets` would do. No scope: all that the group has committed or reads now.

        scope: Scope = {"orders": {0, 1}}
        plan = await admin.plan_reset("billing", Target(earliest=True), scope)
        print(plan.moves)
        """
        stands = await self.list_group_offsets(group)
        description = (await self.describe_groups([group]))[group]
        if not description.has_consumers:
            raise WrongUse(
                f"group {group} is a {description.type} group: only offsets of classic and consumer"
                " groups can be reset"
            )
        if scope:
            places = await self._chosen(scope)
        else:
            there = await self._partitions_of(
                {one.topic for one in {*stands, *description.readers}}
            )
            places = [one for one in sorted({*stands, *description.readers}) if one in there]
            if not places:
                raise WrongUse(
                    f"group {group} has no offsets and reads nothing; name the topics to reset"
                )
        earliest = await self.list_offsets(dict.fromkeys(places, EARLIEST))
        latest = await self.list_offsets(dict.fromkeys(places, LATEST))
        since = {}
        if target.from_ms is not None:
            since = await self.list_offsets(dict.fromkeys(places, target.from_ms))
        moves = []
        for place in places:
            before = _offset(stands.get(place))
            first, end = earliest[place].offset, latest[place].offset
            found = since[place].offset if since else -1
            wanted = _wanted(target, place, before, first=first, end=end, since=found)
            moves.append(OffsetMove(*place, before, min(max(wanted, first), end)))
        return ResetPlan(group, ResetAction.reset, len(description.members), tuple(moves))

    async def plan_undo(self, group: str, scope: Scope | None = None) -> ResetPlan:
        """What `undo_reset` would do: the partitions that the last reset moved, as far as they are
        in the scope.

        # plan = await admin.plan_undo("billing")
        """
        stands = await self.list_group_offsets(group)
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
        description = (await self.describe_groups([group]))[group]
        moves = tuple(
            OffsetMove(*place, _offset(one), None if one.before_reset < 0 else one.before_reset)
            for place, one in undoable.items()
            if one.reset_ms == last_ms
        )
        return ResetPlan(group, ResetAction.undo, len(description.members), moves)

    async def reset_offsets(
        self, group: str, target: Target, scope: Scope | None = None
    ) -> ResetPlan:
        """Moves a group's offsets while its consumers run: they lose their membership, join again
        and begin at the new offsets. All of it or nothing. Only Lograft can; Apache Kafka refuses.

        await admin.reset_offsets("billing", Target(earliest=True), {"orders": None})
        """
        plan = await self.plan_reset(group, target, scope)
        await self.execute_reset(plan)
        return plan

    async def undo_reset(self, group: str, scope: Scope | None = None) -> ResetPlan:
        """Takes the last reset back, while the group's consumers run.

        await admin.reset_offsets("billing", Target(latest=True), {"orders": None})
        await admin.undo_reset("billing")
        """
        plan = await self.plan_undo(group, scope)
        await self.execute_reset(plan)
        return plan

    async def execute_reset(self, plan: ResetPlan) -> None:
        """Does what a plan says, in one step.

        # await admin.execute_reset(await admin.plan_undo("billing"))
        """
        moves = {
            TopicPartition(one.topic, one.partition): GroupOffset(
                -1 if one.after is None else one.after
            )
            for one in plan.moves
        }
        await self._commit(plan.group, commit_topics(moves), plan.action)

    async def _partitions_of(self, topics: Iterable[str]) -> set[TopicPartition]:
        """Of the topics that exist."""
        names = sorted(topics)

        async def ask(_node: Node | None, items: Sequence[str]) -> dict[str, MetadataResponse]:
            return dict.fromkeys(items, await self._calls.metadata(names))

        told = (await self._calls.all_of([""], self._calls.anywhere, ask))[""]
        return {
            TopicPartition(topic.name or "", one.partition_index)
            for topic in told.topics
            for one in topic.partitions
        }

    async def _chosen(self, scope: Scope) -> list[TopicPartition]:
        there = await self._partitions_of(scope)
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
