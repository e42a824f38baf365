"""The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup for the groups of a shard.

The members agree on a protocol and compute the assignment themselves: one of them, the leader,
receives the metadata of all members and sends back the assignment of each. The coordinator waits
until all have joined, numbers the generations and passes the assignments on as opaque bytes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_member import (
    Client,
    Member,
    joining_member,
    protocols_of,
)
from lograft.coordination.classic_rebalance import Rebalancing, Turn, join_answer, shown_to_leader
from lograft.coordination.classic_states import GroupState
from lograft.coordination.group import Group, Replay
from lograft.coordination.types import NOTHING, CoordinatorResult, Reply, Ticket
from lograft.coordination.unserved_groups import UnservedGroup
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.message import Message
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from lograft.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from lograft.wire.records.group_metadata_value import GroupMetadataValue

if TYPE_CHECKING:
    from lograft.coordination.group_shard import GroupShard

#: Versions of JoinGroup.
MEMBER_ID_SINCE: Final = 4
SKIP_ASSIGNMENT_SINCE: Final = 9


class ClassicMembers(Protocol):
    """Serves classic members of groups of another kind that have members."""

    def join(
        self, group: Group, request: JoinGroupRequest, client: Client, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult: ...

    def sync(
        self, group: Group, request: SyncGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult: ...

    def heartbeat(
        self, group: Group, request: HeartbeatRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult: ...

    def leave(
        self, group: Group, request: LeaveGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult: ...


class ClassicGroups:
    """A `group.GroupFamily`."""

    def __init__(self, shard: "GroupShard", elsewhere: ClassicMembers) -> None:
        self._elsewhere = elsewhere
        self._groups = shard.groups
        self._deadlines = shard.deadlines
        self._around = shard.around
        self._rebalancing = Rebalancing(shard.deadlines, shard.around.config)

    # JoinGroup.

    def join(
        self, request: JoinGroupRequest, client: Client, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if isinstance(group, UnservedGroup):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return _join_refused(ticket, code, request.member_id)
        if group is not None and group.kind is not ClassicGroup.kind and not group.is_empty():
            return self._elsewhere.join(group, request, client, ticket, now_ms)
        turn = Turn(now_ms)
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                return _join_refused(ticket, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            new = self.new_group(request.group_id)
            refusal = self._refusal(new, request)
            if refusal is not None:
                return _join_refused(ticket, refusal, "")
            if group is not None:
                turn.records += group.tombstones()
            group = self._groups[request.group_id] = new
        else:
            refusal = self._refusal(group, request)
            if refusal is not None:
                is_full = refusal is ErrorCode.GROUP_MAX_SIZE_REACHED
                if is_full:
                    self._turn_away(turn, group, request.member_id)
                turn.reply(ticket, _join_error(refusal, "" if is_full else request.member_id))
                return turn.outcome()
        if request.member_id and request.member_id not in group.pending:
            self._rejoin(turn, group, request, ticket)
        else:
            self._join_anew(turn, group, request, client, ticket)
        return turn.outcome()

    def _refusal(self, group: ClassicGroup, request: JoinGroupRequest) -> ErrorCode | None:
        if not self._has_room(group, request.member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.supports(request.protocol_type, protocols_of(request)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """During a rebalance, only members that have rejoined count: members that do not come back
        do not keep others out, and of a group that is now too large the first to join stay."""
        size_max = self._around.config().group_max_size
        match group.state:
            case GroupState.PREPARING:
                return member_id in group.joins or len(group.joins) < size_max
            case GroupState.COMPLETING | GroupState.STABLE:
                return member_id in group.members or len(group.members) < size_max
            case _:
                return True

    def _turn_away(self, turn: Turn, group: ClassicGroup, member_id: str) -> None:
        """The group is full: the rebalance does not wait for this member any longer."""
        group.drop_pending(member_id)
        member = group.members.get(member_id)
        if member is not None:
            group.remove(member, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is GroupState.PREPARING:
            self._rebalancing.go_on(turn, group)

    def _join_anew(
        self,
        turn: Turn,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
    ) -> None:
        """For a client without a member id, or with the one that it was just given."""
        instance_id = request.group_instance_id
        uuid = self._around.new_uuid
        member_id = request.member_id or f"{instance_id or client.client_id}-{uuid()}"
        current = group.instances.get(instance_id) if instance_id is not None else None
        if current is not None:
            member = joining_member(member_id, request, client)
            self._replace(turn, group, group.members[current], member, client, ticket)
        elif request.member_id or instance_id is not None or client.api_version < MEMBER_ID_SINCE:
            if not group.members:
                group.protocol_type = request.protocol_type
            member = joining_member(member_id, request, client)
            self._rebalancing.admit(turn, group, member, ticket)
        else:
            # KIP-394: a client that lost the first response would leave a stale member each time.
            at_ms = turn.now_ms + request.session_timeout_ms
            self._rebalancing.expect(group, member_id, at_ms)
            turn.reply(ticket, _join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _rejoin(
        self, turn: Turn, group: ClassicGroup, request: JoinGroupRequest, ticket: Ticket
    ) -> None:
        member_id = request.member_id
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except Rejected as refusal:
            turn.reply(ticket, _join_error(refusal.code, member_id))
            return
        settled = group.state is GroupState.STABLE and group.leader != member_id
        if member.is_as_in(protocols_of(request)) and (
            settled or group.state is GroupState.COMPLETING
        ):
            # It may not have received the response. (A leader that rejoins a stable group requests
            # a rebalance: it has noticed a change that its subscription does not show.)
            turn.reply(ticket, join_answer(group, member_id))
            return
        group.set_protocols(member, lambda member: member.update(request))
        self._park_join(turn, group, member_id, ticket)
        self._rebalancing.go_on(turn, group)

    def _park_join(self, turn: Turn, group: ClassicGroup, member_id: str, ticket: Ticket) -> None:
        """Supersedes its parked JoinGroup, which came in on a connection that has gone away."""
        turn.replies += group.refuse_join(member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
        group.joins[member_id] = ticket

    def _replace(
        self,
        turn: Turn,
        group: ClassicGroup,
        old: Member,
        new: Member,
        client: Client,
        ticket: Ticket,
    ) -> None:
        """A static member (KIP-345) has restarted. Before its session expires it resumes its place
        and assignment, if possible without a rebalance."""
        rebalancing = self._rebalancing
        new.assignment = old.assignment
        rebalancing.arm(group, new, turn.now_ms + new.session_timeout_ms)
        members = [*(one for one in group.members.values() if one is not old), new]
        if group.state is not GroupState.STABLE or (
            group.chosen_protocol(members) != group.protocol
        ):
            turn.replies += group.replace(old, new)
            group.joins[new.member_id] = ticket
            rebalancing.go_on(turn, group)
            return
        is_leader = group.leader == old.member_id
        leader = new.member_id if is_leader else group.leader
        assignments = {one.member_id: one.assignment for one in members}
        turn.records.append(group.record(members, leader, assignments))
        group.arriving = new
        turn.failed = partial(self._not_replaced, group, ticket)
        answer = join_answer(group, new.member_id)
        if client.api_version >= SKIP_ASSIGNMENT_SINCE:
            # KIP-814: a leader learns that it is the leader, but sends no assignment. Older
            # versions receive the previous member id as leader, so they do not act as leader.
            answer.leader = leader or ""
            answer.skip_assignment = is_leader
            answer.members = shown_to_leader(group, members) if is_leader else []
        turn.reply(ticket, answer)

    def _not_replaced(
        self, group: ClassicGroup, ticket: Ticket, code: ErrorCode
    ) -> Sequence[Reply]:
        assert group.arriving is not None, group
        self._deadlines.cancel(group.arriving.session)
        group.arriving = None
        return [(ticket, _join_error(code, ""))]

    # SyncGroup.

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if group is None or group.is_empty() or isinstance(group, UnservedGroup):
            return _sync_refused(ticket, ErrorCode.UNKNOWN_MEMBER_ID)
        if not isinstance(group, ClassicGroup):
            return self._elsewhere.sync(group, request, ticket, now_ms)
        try:
            self._check_sync(group, request)
        except Rejected as refusal:
            return _sync_refused(ticket, refusal.code)
        self._rebalancing.synced(group, request.member_id)
        if group.state is GroupState.STABLE:
            assignment = group.members[request.member_id].assignment
            return CoordinatorResult(replies=[(ticket, _sync_answer(group, assignment))])
        turn = Turn(now_ms)
        turn.replies += group.refuse_sync(request.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        group.syncs[request.member_id] = ticket
        if request.member_id == group.leader:
            self._assign(turn, group, request)
        return turn.outcome()

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if request.protocol_type not in (None, group.protocol_type) or (
            request.protocol_name not in (None, group.protocol)
        ):
            raise Rejected(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id} uses {group.protocol} of type {group.protocol_type}",
            )
        if group.state is GroupState.PREPARING:
            raise Rejected(
                ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} is rebalancing"
            )

    def _assign(self, turn: Turn, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Makes a record of the leader's assignment; with it the group becomes stable."""
        assignments = {one.member_id: bytes(one.assignment) for one in request.assignments}
        turn.records.append(group.record(group.members.values(), group.leader, assignments))
        tickets, group.syncs = group.syncs, {}
        for member_id, waiting in tickets.items():
            turn.reply(waiting, _sync_answer(group, assignments.get(member_id, b"")))
            group.keep_alive(group.members[member_id], turn.now_ms)
        turn.failed = partial(self._rebalancing.assignment_lost, group, turn.now_ms, tickets)

    # Heartbeat.

    def heartbeat(
        self, request: HeartbeatRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if group is None or isinstance(group, UnservedGroup):
                return _beat(ticket, ErrorCode.UNKNOWN_MEMBER_ID)
            return self._elsewhere.heartbeat(group, request, ticket, now_ms)
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except Rejected as refusal:
            return _beat(ticket, refusal.code)
        group.keep_alive(member, now_ms)
        if group.state is GroupState.PREPARING:
            return _beat(ticket, ErrorCode.REBALANCE_IN_PROGRESS)
        return _beat(ticket, ErrorCode.NONE)

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if group is not None and not isinstance(group, UnservedGroup):
                return self._elsewhere.leave(group, request, ticket, now_ms)
            group = self.new_group(request.group_id)
        turn = Turn(now_ms)
        size = len(group.members)
        answers = [self._leave(turn, group, leaving) for leaving in request.members]
        if len(group.members) < size or group.state is GroupState.PREPARING:
            self._rebalancing.go_on(turn, group)
        turn.reply(ticket, LeaveGroupResponse(members=answers))
        return turn.outcome()

    def _leave(self, turn: Turn, group: ClassicGroup, leaving: MemberIdentity) -> MemberResponse:
        answer = MemberResponse(
            member_id=leaving.member_id, group_instance_id=leaving.group_instance_id
        )
        if leaving.member_id and group.drop_pending(leaving.member_id):
            return answer
        member_id = leaving.member_id
        if not member_id and leaving.group_instance_id is not None:
            # An admin client removes a static member without knowing its member id.
            member_id = group.instances.get(leaving.group_instance_id, "")
        try:
            member = group.check_member(member_id, leaving.group_instance_id)
        except Rejected as refusal:
            answer.error_code = refusal.code
            return answer
        turn.replies += group.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        return answer

    # Lifecycle of the shard.

    def new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._deadlines, self._around.wall_ms)

    def replays(self) -> Mapping[type[Message], Replay]:
        return {GroupMetadataKey: self._replay}

    def _replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        group = self._groups.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.bury()
                del self._groups[key.group]
            return
        if not isinstance(group, ClassicGroup):
            group = self._groups[key.group] = self.new_group(key.group)
        group.take(value)

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        turn = Turn(now_ms)
        for group in list(self._groups.values()):
            if isinstance(group, ClassicGroup):
                self._open(turn, group)
        return turn.outcome()

    def _open(self, turn: Turn, group: ClassicGroup) -> None:
        """Its members have one session timeout to find this coordinator."""
        for member in group.members.values():
            self._rebalancing.arm(group, member, turn.now_ms + member.session_timeout_ms)
        is_too_large = len(group.members) > self._around.config().group_max_size
        if is_too_large or (group.members and group.leader is None):
            # (A group has no leader after `group_conversion.downgrade_records`.)
            self._rebalancing.begin(turn, group)

    def take_over(self, group_id: str, now_ms: int) -> CoordinatorResult:
        """Opens a group of another kind that has just become a classic one by its records."""
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup), group
        turn = Turn(now_ms)
        self._open(turn, group)
        return turn.outcome()

    def on_unloaded(self) -> Sequence[Reply]:
        return [
            reply
            for group in self._groups.values()
            if isinstance(group, ClassicGroup)
            for reply in group.refuse_all(ErrorCode.NOT_COORDINATOR)
        ]

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        """Consumers in classic groups detect topic changes themselves."""
        return NOTHING


def _join_error(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, leader="")


def _join_refused(ticket: Ticket, code: ErrorCode, member_id: str) -> CoordinatorResult:
    return CoordinatorResult(replies=[(ticket, _join_error(code, member_id))], waits=False)


def _sync_refused(ticket: Ticket, code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(replies=[(ticket, SyncGroupResponse(error_code=code))], waits=False)


def _sync_answer(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def _beat(ticket: Ticket, code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(replies=((ticket, HeartbeatResponse(error_code=code)),), waits=False)
