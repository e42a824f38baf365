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
    build_member,
    protocols_of,
)
from lograft.coordination.classic_rebalance import (
    Rebalancing,
    ResultBuilder,
    join_response,
    members_for_leader,
)
from lograft.coordination.classic_states import GroupState
from lograft.coordination.group import Group, Replay
from lograft.coordination.types import NOTHING, CoordinatorResult, Reply, Ticket
from lograft.coordination.unsupported_groups import UnsupportedGroup
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

    def __init__(self, shard: "GroupShard", classic_members: ClassicMembers) -> None:
        self._classic_members = classic_members
        self._groups = shard.groups
        self._deadlines = shard.deadlines
        self._context = shard.context
        self._rebalancing = Rebalancing(shard.deadlines, shard.context.config)

    # JoinGroup.

    def join(
        self, request: JoinGroupRequest, client: Client, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if isinstance(group, UnsupportedGroup):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return _reject_join(ticket, code, request.member_id)
        if group is not None and group.kind is not ClassicGroup.kind and not group.is_empty():
            return self._classic_members.join(group, request, client, ticket, now_ms)
        builder = ResultBuilder(now_ms)
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                return _reject_join(ticket, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            new = self.new_group(request.group_id)
            rejection = self._find_rejection(new, request)
            if rejection is not None:
                return _reject_join(ticket, rejection, "")
            if group is not None:
                builder.records += group.tombstones()
            group = self._groups[request.group_id] = new
        else:
            rejection = self._find_rejection(group, request)
            if rejection is not None:
                is_full = rejection is ErrorCode.GROUP_MAX_SIZE_REACHED
                if is_full:
                    self._reject_over_capacity(builder, group, request.member_id)
                builder.reply(ticket, _join_error(rejection, "" if is_full else request.member_id))
                return builder.build()
        if request.member_id and request.member_id not in group.pending:
            self._rejoin(builder, group, request, ticket)
        else:
            self._join_new_member(builder, group, request, client, ticket)
        return builder.build()

    def _find_rejection(self, group: ClassicGroup, request: JoinGroupRequest) -> ErrorCode | None:
        if not self._accepts_member(group, request.member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.supports(request.protocol_type, protocols_of(request)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _accepts_member(self, group: ClassicGroup, member_id: str) -> bool:
        """During a rebalance, only members that have rejoined count: members that do not come back
        do not keep others out, and of a group that is now too large the first to join stay."""
        size_max = self._context.config().group_max_size
        match group.state:
            case GroupState.PREPARING:
                return member_id in group.joins or len(group.joins) < size_max
            case GroupState.COMPLETING | GroupState.STABLE:
                return member_id in group.members or len(group.members) < size_max
            case _:
                return True

    def _reject_over_capacity(
        self, builder: ResultBuilder, group: ClassicGroup, member_id: str
    ) -> None:
        """The group is full: the rebalance does not wait for this member any longer."""
        group.remove_pending(member_id)
        member = group.members.get(member_id)
        if member is not None:
            group.remove(member, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is GroupState.PREPARING:
            self._rebalancing.advance(builder, group)

    def _join_new_member(
        self,
        builder: ResultBuilder,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        ticket: Ticket,
    ) -> None:
        """For a client without a member id, or with the one that it was just given."""
        instance_id = request.group_instance_id
        uuid = self._context.new_uuid
        member_id = request.member_id or f"{instance_id or client.client_id}-{uuid()}"
        current = group.instances.get(instance_id) if instance_id is not None else None
        if current is not None:
            member = build_member(member_id, request, client)
            self._replace(builder, group, group.members[current], member, client, ticket)
        elif request.member_id or instance_id is not None or client.api_version < MEMBER_ID_SINCE:
            if not group.members:
                group.protocol_type = request.protocol_type
            member = build_member(member_id, request, client)
            self._rebalancing.add_member(builder, group, member, ticket)
        else:
            # KIP-394: a client that lost the first response would leave a stale member each time.
            at_ms = builder.now_ms + request.session_timeout_ms
            self._rebalancing.add_pending(group, member_id, at_ms)
            builder.reply(ticket, _join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _rejoin(
        self, builder: ResultBuilder, group: ClassicGroup, request: JoinGroupRequest, ticket: Ticket
    ) -> None:
        member_id = request.member_id
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except Rejected as rejection:
            builder.reply(ticket, _join_error(rejection.code, member_id))
            return
        settled = group.state is GroupState.STABLE and group.leader != member_id
        if member.has_protocols(protocols_of(request)) and (
            settled or group.state is GroupState.COMPLETING
        ):
            # It may not have received the response. (A leader that rejoins a stable group requests
            # a rebalance: it has noticed a change that its subscription does not show.)
            builder.reply(ticket, join_response(group, member_id))
            return
        group.update_protocols(member, lambda member: member.update(request))
        self._park_join(builder, group, member_id, ticket)
        self._rebalancing.advance(builder, group)

    def _park_join(
        self, builder: ResultBuilder, group: ClassicGroup, member_id: str, ticket: Ticket
    ) -> None:
        """Supersedes its parked JoinGroup, whose connection has been closed."""
        builder.replies += group.reject_join(member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
        group.joins[member_id] = ticket

    def _replace(
        self,
        builder: ResultBuilder,
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
        rebalancing.start_session(group, new, builder.now_ms + new.session_timeout_ms)
        members = [*(member for member in group.members.values() if member is not old), new]
        if group.state is not GroupState.STABLE or (
            group.choose_protocol(members) != group.protocol
        ):
            builder.replies += group.replace(old, new)
            group.joins[new.member_id] = ticket
            rebalancing.advance(builder, group)
            return
        is_leader = group.leader == old.member_id
        leader = new.member_id if is_leader else group.leader
        assignments = {member.member_id: member.assignment for member in members}
        builder.records.append(group.record(members, leader, assignments))
        group.replacement = new
        builder.on_failure = partial(self._revert_replacement, group, ticket)
        response = join_response(group, new.member_id)
        if client.api_version >= SKIP_ASSIGNMENT_SINCE:
            # KIP-814: a leader learns that it is the leader, but sends no assignment. Older
            # versions receive the previous member id as leader, so they do not act as leader.
            response.leader = leader or ""
            response.skip_assignment = is_leader
            response.members = members_for_leader(group, members) if is_leader else []
        builder.reply(ticket, response)

    def _revert_replacement(
        self, group: ClassicGroup, ticket: Ticket, code: ErrorCode
    ) -> Sequence[Reply]:
        assert group.replacement is not None, group
        self._deadlines.cancel(group.replacement.session)
        group.replacement = None
        return [(ticket, _join_error(code, ""))]

    # SyncGroup.

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if group is None or group.is_empty() or isinstance(group, UnsupportedGroup):
            return _reject_sync(ticket, ErrorCode.UNKNOWN_MEMBER_ID)
        if not isinstance(group, ClassicGroup):
            return self._classic_members.sync(group, request, ticket, now_ms)
        try:
            self._check_sync(group, request)
        except Rejected as rejection:
            return _reject_sync(ticket, rejection.code)
        self._rebalancing.on_sync(group, request.member_id)
        if group.state is GroupState.STABLE:
            assignment = group.members[request.member_id].assignment
            return CoordinatorResult(replies=[(ticket, _sync_response(group, assignment))])
        builder = ResultBuilder(now_ms)
        builder.replies += group.reject_sync(request.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        group.syncs[request.member_id] = ticket
        if request.member_id == group.leader:
            self._assign(builder, group, request)
        return builder.build()

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

    def _assign(
        self, builder: ResultBuilder, group: ClassicGroup, request: SyncGroupRequest
    ) -> None:
        """Makes a record of the leader's assignment; with it the group becomes stable."""
        assignments = {
            assignment.member_id: bytes(assignment.assignment) for assignment in request.assignments
        }
        builder.records.append(group.record(group.members.values(), group.leader, assignments))
        tickets, group.syncs = group.syncs, {}
        for member_id, waiting in tickets.items():
            builder.reply(waiting, _sync_response(group, assignments.get(member_id, b"")))
            group.keep_alive(group.members[member_id], builder.now_ms)
        builder.on_failure = partial(
            self._rebalancing.on_assignment_lost, group, builder.now_ms, tickets
        )

    # Heartbeat.

    def heartbeat(
        self, request: HeartbeatRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if group is None or isinstance(group, UnsupportedGroup):
                return _heartbeat_reply(ticket, ErrorCode.UNKNOWN_MEMBER_ID)
            return self._classic_members.heartbeat(group, request, ticket, now_ms)
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except Rejected as rejection:
            return _heartbeat_reply(ticket, rejection.code)
        group.keep_alive(member, now_ms)
        if group.state is GroupState.PREPARING:
            return _heartbeat_reply(ticket, ErrorCode.REBALANCE_IN_PROGRESS)
        return _heartbeat_reply(ticket, ErrorCode.NONE)

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if group is not None and not isinstance(group, UnsupportedGroup):
                return self._classic_members.leave(group, request, ticket, now_ms)
            group = self.new_group(request.group_id)
        builder = ResultBuilder(now_ms)
        size = len(group.members)
        responses = [self._leave(builder, group, leaving) for leaving in request.members]
        if len(group.members) < size or group.state is GroupState.PREPARING:
            self._rebalancing.advance(builder, group)
        builder.reply(ticket, LeaveGroupResponse(members=responses))
        return builder.build()

    def _leave(
        self, builder: ResultBuilder, group: ClassicGroup, leaving: MemberIdentity
    ) -> MemberResponse:
        response = MemberResponse(
            member_id=leaving.member_id, group_instance_id=leaving.group_instance_id
        )
        if leaving.member_id and group.remove_pending(leaving.member_id):
            return response
        member_id = leaving.member_id
        if not member_id and leaving.group_instance_id is not None:
            # An admin client removes a static member without knowing its member id.
            member_id = group.instances.get(leaving.group_instance_id, "")
        try:
            member = group.check_member(member_id, leaving.group_instance_id)
        except Rejected as rejection:
            response.error_code = rejection.code
            return response
        builder.replies += group.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        return response

    # Lifecycle of the shard.

    def new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._deadlines, self._context.wall_ms)

    def replays(self) -> Mapping[type[Message], Replay]:
        return {GroupMetadataKey: self._replay}

    def _replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        group = self._groups.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.discard()
                del self._groups[key.group]
            return
        if not isinstance(group, ClassicGroup):
            group = self._groups[key.group] = self.new_group(key.group)
        group.replay(value)

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        builder = ResultBuilder(now_ms)
        for group in list(self._groups.values()):
            if isinstance(group, ClassicGroup):
                self._start_sessions(builder, group)
        return builder.build()

    def _start_sessions(self, builder: ResultBuilder, group: ClassicGroup) -> None:
        """Its members have one session timeout to find this coordinator."""
        for member in group.members.values():
            self._rebalancing.start_session(
                group, member, builder.now_ms + member.session_timeout_ms
            )
        is_too_large = len(group.members) > self._context.config().group_max_size
        if is_too_large or (group.members and group.leader is None):
            # (A group has no leader after `group_conversion.downgrade_records`.)
            self._rebalancing.begin(builder, group)

    def on_converted(self, group_id: str, now_ms: int) -> CoordinatorResult:
        """Opens a group of another kind that has just become a classic one by its records."""
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup), group
        builder = ResultBuilder(now_ms)
        self._start_sessions(builder, group)
        return builder.build()

    def on_unloaded(self) -> Sequence[Reply]:
        return [
            reply
            for group in self._groups.values()
            if isinstance(group, ClassicGroup)
            for reply in group.reject_all(ErrorCode.NOT_COORDINATOR)
        ]

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        """Consumers in classic groups detect topic changes themselves."""
        return NOTHING


def _join_error(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, leader="")


def _reject_join(ticket: Ticket, code: ErrorCode, member_id: str) -> CoordinatorResult:
    return CoordinatorResult(replies=[(ticket, _join_error(code, member_id))], waits=False)


def _reject_sync(ticket: Ticket, code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(replies=[(ticket, SyncGroupResponse(error_code=code))], waits=False)


def _sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def _heartbeat_reply(ticket: Ticket, code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(replies=((ticket, HeartbeatResponse(error_code=code)),), waits=False)
