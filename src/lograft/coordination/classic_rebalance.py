"""The course of a rebalance: when it starts, which members it waits for, and when it ends.

Every method adds its effects to a `ResultBuilder`, which collects the result of one command.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_member import Member
from lograft.coordination.classic_states import Cause, GroupState
from lograft.coordination.deadlines import Deadlines
from lograft.coordination.types import NOTHING, CoordinatorResult, Record, Reply, Ticket
from lograft.model.errors import ErrorCode
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.message import Message
from lograft.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

#: How long the first JoinGroup of a member may be parked before the client has to send it again.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000


class ResultBuilder:
    """Collects the results of one command or one expired deadline."""

    __slots__ = ("now_ms", "on_failure", "records", "replies")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.on_failure: Callable[[ErrorCode], Sequence[Reply]] | None = None

    def reply(self, ticket: Ticket, message: Message) -> None:
        self.replies.append((ticket, message))

    def build(self) -> CoordinatorResult:
        if not self.records and not self.replies:
            return NOTHING
        # Without records, the replies depend on soft state only.
        return CoordinatorResult(
            records=self.records,
            replies=self.replies,
            on_failure=self.on_failure,
            waits=bool(self.records),
        )


def members_for_leader(
    group: ClassicGroup, members: Iterable[Member]
) -> list[JoinGroupResponseMember]:
    """The members' metadata, from which the leader computes the assignment."""
    assert group.protocol is not None, group
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.protocols[group.protocol],
        )
        for member in members
    ]


def join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    is_leader = group.leader == member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=members_for_leader(group, group.members.values()) if is_leader else [],
    )


class Rebalancing:
    """Drives the rebalances of all classic groups of a shard."""

    def __init__(
        self, deadlines: Deadlines[CoordinatorResult], config: Callable[[], BrokerConfig]
    ) -> None:
        self._deadlines = deadlines
        self._config = config

    # Members join and leave.

    def add_member(
        self, builder: ResultBuilder, group: ClassicGroup, member: Member, ticket: Ticket
    ) -> None:
        """Adds a new member; its reply is sent when all members have joined."""
        member.is_new = True
        if group.state is GroupState.PREPARING and group.is_initial:
            group.has_new_members = True
        group.add(member)
        group.joins[member.member_id] = ticket
        self.start_session(group, member, builder.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.advance(builder, group)

    def start_session(self, group: ClassicGroup, member: Member, at_ms: int) -> None:
        """Starts its session, which expires at this time unless a request extends it."""
        assert member.session is None, member
        member.session = self._deadlines.add(
            at_ms, partial(self._on_session_expired, group, member)
        )

    def add_pending(self, group: ClassicGroup, member_id: str, at_ms: int) -> None:
        """Waits for a client to join with the member id that it was given."""
        group.pending[member_id] = self._deadlines.add(
            at_ms, partial(self._on_pending_expired, group, member_id)
        )

    def _on_session_expired(
        self, group: ClassicGroup, member: Member, now_ms: int
    ) -> CoordinatorResult:
        if group.members.get(member.member_id) is not member:
            return self._retry_empty_record(group)
        waits = member.member_id in group.joins or member.member_id in group.syncs
        if waits and not member.is_new:
            return NOTHING  # It has a request parked; the reply to it restarts the session.
        builder = ResultBuilder(now_ms)
        builder.replies += group.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.advance(builder, group)
        return builder.build()

    def _retry_empty_record(self, group: ClassicGroup) -> CoordinatorResult:
        """Retries the record of an empty group, after an earlier attempt could not be appended."""
        return (
            CoordinatorResult(records=[group.build_empty_record()]) if group.is_empty() else NOTHING
        )

    def _on_pending_expired(
        self, group: ClassicGroup, member_id: str, now_ms: int
    ) -> CoordinatorResult:
        builder = ResultBuilder(now_ms)
        group.remove_pending(member_id)
        if group.state is GroupState.PREPARING:
            self.advance(builder, group)
        return builder.build()

    # The phases.

    def advance(self, builder: ResultBuilder, group: ClassicGroup) -> None:
        """After a member joined, changed or left: starts a rebalance, or ends its join phase."""
        if group.state is not GroupState.PREPARING:
            self.begin(builder, group)
        elif group.has_all_joined and not group.is_initial:
            self.complete(builder, group)

    def begin(self, builder: ResultBuilder, group: ClassicGroup) -> None:
        group.is_initial = group.state is GroupState.EMPTY
        if group.state is GroupState.COMPLETING:
            self._reset_assignments(builder, group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._deadlines.cancel(group.sync_deadline)
        group.transition(Cause.REBALANCE)
        if group.is_initial:
            delay_ms = self._config().group_initial_rebalance_delay_ms
            self._delay(builder, group, delay_ms, group.rebalance_timeout_ms - delay_ms)
        elif group.has_all_joined:
            self.complete(builder, group)
        else:
            self._wait_for_joins(builder, group)

    def complete(self, builder: ResultBuilder, group: ClassicGroup) -> None:
        """Ends the join phase: a generation begins with the members that have joined. Static
        members that have not joined remain until their session expires."""
        self._deadlines.cancel(group.join_deadline)
        for member in list(group.members.values()):
            if member.member_id not in group.joins and not member.is_static:
                group.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_leader():
            self._wait_for_joins(builder, group)  # Only static members, and none has joined.
            return
        group.begin_generation()
        if not group.members:
            builder.records.append(group.build_empty_record())
            return
        for member in group.members.values():
            ticket = group.joins.pop(member.member_id, None)
            if ticket is not None:
                builder.reply(ticket, join_response(group, member.member_id))
            group.keep_alive(member, builder.now_ms)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        group.sync_deadline = self._deadlines.add(
            builder.now_ms + group.rebalance_timeout_ms,
            partial(self._on_sync_timeout, group, group.generation),
        )

    def on_sync(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.pop(member_id, None)
        if not group.pending_syncs:
            self._deadlines.cancel(group.sync_deadline)

    def on_assignment_lost(
        self, group: ClassicGroup, now_ms: int, tickets: dict[str, Ticket], code: ErrorCode
    ) -> list[Reply]:
        """The record with the assignment could not be written: all members have to rejoin."""
        builder = ResultBuilder(now_ms)
        group.syncs.update(tickets)
        self._reset_assignments(builder, group, code)
        self.advance(builder, group)
        assert not builder.records, group
        return builder.replies

    def _reset_assignments(
        self, builder: ResultBuilder, group: ClassicGroup, code: ErrorCode
    ) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.member_id in group.syncs:
                builder.replies += group.reject_sync(member.member_id, code)
                group.keep_alive(member, builder.now_ms)

    # Waiting.

    def _wait_for_joins(self, builder: ResultBuilder, group: ClassicGroup) -> None:
        group.join_deadline = self._deadlines.add(
            builder.now_ms + group.rebalance_timeout_ms, partial(self._on_join_timeout, group)
        )

    def _on_join_timeout(self, group: ClassicGroup, now_ms: int) -> CoordinatorResult:
        builder = ResultBuilder(now_ms)
        self.complete(builder, group)
        return builder.build()

    def _delay(
        self, builder: ResultBuilder, group: ClassicGroup, delay_ms: int, rest_ms: int
    ) -> None:
        group.has_new_members = False
        group.join_deadline = self._deadlines.add(
            builder.now_ms + delay_ms,
            partial(self._on_delay_expired, group, delay_ms, max(rest_ms, 0)),
        )

    def _on_delay_expired(
        self, group: ClassicGroup, delay_ms: int, rest_ms: int, now_ms: int
    ) -> CoordinatorResult:
        """While members keep joining, delays the first generation up to the rebalance timeout."""
        builder = ResultBuilder(now_ms)
        if group.has_new_members and rest_ms:
            again_ms = min(self._config().group_initial_rebalance_delay_ms, rest_ms)
            self._delay(builder, group, again_ms, rest_ms - delay_ms)
        else:
            self.complete(builder, group)
        return builder.build()

    def _on_sync_timeout(
        self, group: ClassicGroup, generation: int, now_ms: int
    ) -> CoordinatorResult:
        """Removes the members that have not sent SyncGroup in time."""
        if generation != group.generation or not group.pending_syncs:
            return self._retry_empty_record(group)
        builder = ResultBuilder(now_ms)
        for member_id in list(group.pending_syncs):
            builder.replies += group.remove(group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        self.advance(builder, group)
        return builder.build()
