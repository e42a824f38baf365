"""Where groups stand: their committed offsets, and moving them while the group runs, and back.

First a plan, partition by partition; then, if it is wanted, one request to the coordinator, which
does all of it or nothing (docs/decisions/0010).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lograft.client.administering.groups import GroupsPart
from lograft.client.administering.partitions import (
    EARLIEST,
    LATEST,
    PartitionsPart,
    by_topic,
    failure,
)
from lograft.client.errors import ClientError, UnsupportedByBroker, WrongUse, raise_for
from lograft.client.network import Node
from lograft.model.errors import ErrorCode
from lograft.model.types import RESET_GENERATION, ResetAction, TopicPartition
from lograft.wire.messages.metadata import MetadataResponse
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

#: What a server says that steps over the action and sees a commit of nobody.
_NOT_UNDERSTOOD: Final = frozenset(
    (ErrorCode.unknown_member_id, ErrorCode.group_id_not_found, ErrorCode.illegal_generation)
)
#: Topics by name; from 10 on they are named by their ids.
_COMMIT_VERSIONS: Final = (8, 9)
_FETCH_VERSIONS: Final = (8, 9)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    #: When it was last reset, if that can be undone; -1 otherwise.
    reset_ms: int = -1
    #: Where an undo goes back to; -1: to none.
    before_reset: int = -1


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


class GroupOffsetsPart(GroupsPart, PartitionsPart):
    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group has committed: all, or in these partitions.

        print(await admin.list_group_offsets("billing"))
        """
        wanted = None if partitions is None else by_topic(partitions)

        async def ask(
            node: Node | None, groups: Sequence[str]
        ) -> dict[str, dict[TopicPartition, GroupOffset]]:
            topics = (
                None
                if wanted is None
                else [
                    OffsetFetchRequestTopics(
                        name=name, partition_indexes=[one.partition for one in those]
                    )
                    for name, those in wanted.items()
                ]
            )
            answer = await self._calls.ask(
                node,
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]),
                OffsetFetchResponse,
                at_least=_FETCH_VERSIONS[0],
                at_most=_FETCH_VERSIONS[1],
            )
            (told,) = answer.groups
            raise_for(told.error_code, f"group {group!r}")
            found = {}
            for topic in told.topics:
                for one in topic.partitions:
                    place = TopicPartition(topic.name, one.partition_index)
                    raise_for(one.error_code, f"group {group!r}, {place}")
                    if one.committed_offset >= 0 or one.reset_timestamp >= 0:
                        found[place] = GroupOffset(
                            one.committed_offset,
                            one.metadata or "",
                            one.committed_leader_epoch,
                            one.reset_timestamp,
                            one.offset_before_reset,
                        )
            return {groups[0]: found}

        found = await self._calls.all_of([group], self._calls.group_coordinators, ask)
        return found[group]

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> None:
        """Sets offsets of a group without members, as Kafka does; `reset_offsets` moves those of a
        group in use.

        await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
        """
        moves = {
            place: one if isinstance(one, GroupOffset) else GroupOffset(one)
            for place, one in offsets.items()
        }
        await self._commit(group, _commit_topics(moves), ResetAction.none)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets where a group stands in partitions of topics that it does not read now.

        await admin.delete_group_offsets("billing", [TopicPartition("orders", 0)])
        """
        places = list(partitions)

        async def ask(node: Node | None, groups: Sequence[str]) -> dict[str, None]:
            answer = await self._calls.ask(
                node,
                OffsetDeleteRequest(
                    group_id=group,
                    topics=[
                        OffsetDeleteRequestTopic(
                            name=name,
                            partitions=[
                                OffsetDeleteRequestPartition(partition_index=one.partition)
                                for one in those
                            ],
                        )
                        for name, those in by_topic(places).items()
                    ],
                ),
                OffsetDeleteResponse,
            )
            raise_for(answer.error_code, f"group {group!r}")
            for topic in answer.topics:
                for one in topic.partitions:
                    raise_for(
                        one.error_code, f"group {group!r}, {topic.name}-{one.partition_index}"
                    )
            return {groups[0]: None}

        await self._calls.all_of([group], self._calls.group_coordinators, ask)

    # ── resets ───────────────────────────────────────────────────────────────────────────────

    async def plan_reset(self, group: str, target: Target, scope: Scope | None = None) -> ResetPlan:
        """What `reset_offsets` would do. No scope: all that the group has committed or reads now.

        plan = await admin.plan_reset("billing", Target(earliest=True), {"orders": None})
        print(plan.moves)
        """
        stands = await self.list_group_offsets(group)
        description = (await self.describe_groups([group]))[group]
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
        await self._commit(plan.group, _commit_topics(moves), plan.action)

    async def _commit(
        self, group: str, topics: list[OffsetCommitRequestTopic], action: ResetAction
    ) -> None:
        request = OffsetCommitRequest(group_id=group, topics=topics, reset_action=action)
        if action is not ResetAction.none:
            request.generation_id_or_member_epoch = RESET_GENERATION

        async def ask(node: Node | None, groups: Sequence[str]) -> dict[str, None]:
            answer = await self._calls.ask(
                node,
                request,
                OffsetCommitResponse,
                at_least=_COMMIT_VERSIONS[0],
                at_most=_COMMIT_VERSIONS[1],
            )
            for topic in answer.topics:
                for one in topic.partitions:
                    _check_commit(group, action, one.error_code, answer.error_message)
            return {groups[0]: None}

        await self._calls.all_of([group], self._calls.group_coordinators, ask)

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


def _commit_topics(
    offsets: Mapping[TopicPartition, GroupOffset],
) -> list[OffsetCommitRequestTopic]:
    return [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=one.partition,
                    committed_offset=offsets[one].offset,
                    committed_leader_epoch=offsets[one].leader_epoch,
                    committed_metadata=offsets[one].metadata,
                )
                for one in those
            ],
        )
        for name, those in by_topic(offsets).items()
    ]


def _check_commit(group: str, action: ResetAction, code: int, message: str) -> None:
    if action is not ResetAction.none and code in _NOT_UNDERSTOOD and not message:
        raise UnsupportedByBroker(
            "this server does not reset groups in use (it is no Lograft, or an older one); stop the"
            " group's consumers and use alter_group_offsets, or kafka-consumer-groups"
        )
    if code == ErrorCode.unknown_member_id and action is ResetAction.none:
        message = "it has members, whose commits would win: stop them first"
    error: ClientError | None = failure(code, f"group {group!r}", message or None)
    if error is not None:
        raise error
