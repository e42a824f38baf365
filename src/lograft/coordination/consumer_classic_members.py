"""Classic members of consumer groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of clients
that have not moved to the consumer protocol yet, while other members of their group have.

The problem. The two protocols disagree on who assigns partitions and when. In the classic protocol
a client computes the assignment, and all members stop at a barrier: JoinGroup returns when all have
joined. In the consumer protocol (KIP-848) the coordinator computes it, and each member moves to its
target at its own pace. A group that is migrated one client at a time has members of both kinds, and
still no partition may have two owners (G2). A classic client can report what it owns only when it
joins, and can learn what it owns only when it syncs.

The rule. The coordinator assigns the partitions of all members, so that classic members take the
steps of `consumer_reconciliation` with the requests that they have:

- JoinGroup is the equivalent of a heartbeat of the consumer protocol: it reports the subscription
  and, in the metadata of the first protocol, the owned partitions. The response is sent
  immediately, because no member waits for others. It names no leader and no members, so the client
  computes no assignment. An eager client reports nothing, as it has revoked everything.
- SyncGroup returns the partitions that the member may use now: those of its target that are free,
  and no others.
- Heartbeat returns REBALANCE_IN_PROGRESS if the member has a step to take: there is a newer target,
  it has to revoke partitions, or all partitions that it waits for have become free. The client then
  rejoins. While other members still own some of these partitions, it need not rejoin.
- The member epoch is the generation. A request with another generation is rejected, so offsets that
  a client commits for an assignment that it has lost are, too.

Why no partition has two owners. A partition that the target takes from a classic member counts as
owned until a JoinGroup request does not report it. Until then the member's epoch stays, and its
SyncGroup response no longer contains the partition: a cooperative client revokes it after this
response and joins again. SyncGroup is therefore answered in that state, although the member is
behind the target; in any other state behind the target the client must rejoin first.

Why the group makes progress. A classic client without these requests would keep its partitions as
long as its session lasts. So a rebalance timeout runs from REBALANCE_IN_PROGRESS to the JoinGroup,
and another one from there to the SyncGroup; a member that exceeds it is fenced. In a group with
only classic members, no heartbeat of the consumer protocol computes the next target, so their own
heartbeats check for changed topics.

All classic members must support one common protocol, because the group may become a classic group
again (`group_conversion`).
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from lograft.coordination.classic_groups import MEMBER_ID_SINCE
from lograft.coordination.classic_member import Client, protocols_of, rebalance_timeout_of
from lograft.coordination.classic_subscription import CONSUMER_PROTOCOL, subscription_of
from lograft.coordination.consumer_change import MemberChange
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_groups import ConsumerGroups
from lograft.coordination.consumer_heartbeat import check_size, find_static_member
from lograft.coordination.consumer_member import JOIN, ConsumerMember, MemberState
from lograft.coordination.consumer_targets import metadata_hash
from lograft.coordination.group import Group
from lograft.coordination.group_conversion import (
    classic_metadata,
    encode_assignment_by_name,
    may_downgrade,
)
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.uuids import uuid_to_text
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from lograft.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from lograft.wire.records.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)


class ConsumerClassicMembers:
    """A `classic_groups.ClassicMembers`."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups: Final = groups
        self._context: Final = groups.shard.context

    # JoinGroup.

    def join(
        self, group: Group, request: JoinGroupRequest, client: Client, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        assert isinstance(group, ConsumerGroup), group
        try:
            return self._join(group, request, client, ticket=ticket, now_ms=now_ms)
        except Rejected as rejection:
            error = JoinGroupResponse(
                error_code=rejection.code, member_id=request.member_id, leader=""
            )
            return CoordinatorResult(replies=[(ticket, error)], waits=False)

    def _join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: Client,
        *,
        ticket: Ticket,
        now_ms: int,
    ) -> CoordinatorResult:
        context = self._groups.change_context(group.group_id, client)
        is_known = request.member_id != ""
        member_id = request.member_id or uuid_to_text(self._context.new_uuid())
        check_size(group, member_id, context.settings)
        subscription = _check_protocols(group, request)
        instance_id = request.group_instance_id
        if not is_known and instance_id is None and client.api_version >= MEMBER_ID_SINCE:
            # KIP-394. The id is not stored: a member with any unknown id may join.
            error = JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, leader=""
            )
            return CoordinatorResult(replies=[(ticket, error)], waits=False)
        replaces: ConsumerMember | None = None
        if instance_id is None:
            old = group.members.get(member_id) or ConsumerMember(member_id)
        elif is_known:
            old = find_static_member(group, instance_id, member_id)
        else:
            replaces = group.static_member(instance_id)
            old = (
                ConsumerMember(member_id)
                if replaces is None
                else replaces._replace(member_id=member_id, epoch=JOIN, previous_epoch=JOIN)
            )
        new = _update_member(old, request, subscription, client)
        if (
            replaces is not None
            and replaces.classic is None
            and may_downgrade(
                group,
                [replaces.member_id],
                context.settings,
                arriving=1,
                classic_members_max=self._context.config().group_max_size,
            )
        ):
            outcome = self._groups.downgrade(group, [replaces], now_ms, arriving=new)
            epoch = group.epoch
        else:
            change = MemberChange(group=group, context=context, old=old, new=new, replaces=replaces)
            member = change.apply(
                _reported_partitions(subscription.owned_partitions, context.image)
            )
            outcome, epoch = CoordinatorResult(records=change.records), member.epoch
            self._groups.extend_session(
                group.group_id, member_id, now_ms, request.session_timeout_ms
            )
            self._groups.start_step_timeout(
                group.group_id, new, now_ms, restart=True
            )  # SyncGroup comes next.
        response = JoinGroupResponse(
            generation_id=epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=request.protocols[0].name,
            leader="",
            member_id=member_id,
        )
        outcome.replies = [*outcome.replies, (ticket, response)]
        return outcome

    # SyncGroup.

    def sync(
        self, group: Group, request: SyncGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        assert isinstance(group, ConsumerGroup), group
        try:
            member = _member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            assert member.classic is not None, member
            protocol = member.classic.supported_protocols[0]
            if request.protocol_type not in (None, CONSUMER_PROTOCOL) or (
                request.protocol_name not in (None, protocol.name)
            ):
                raise Rejected(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"Member {member.member_id} uses {protocol.name} of type {CONSUMER_PROTOCOL}.",
                )
            if member.epoch < group.target_epoch and (
                # A member that has to revoke partitions learns of it by this response.
                member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                self._groups.start_step_timeout(group.group_id, member, now_ms)
                raise Rejected(
                    ErrorCode.REBALANCE_IN_PROGRESS,
                    f"Member {member.member_id} has to rejoin group {group.group_id}.",
                )
        except Rejected as rejection:
            error = SyncGroupResponse(error_code=rejection.code)
            return CoordinatorResult(replies=[(ticket, error)], waits=False)
        self._groups.cancel_step_timeout(group.group_id, member.member_id)
        self._extend(group, member, now_ms)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment_by_name(
                member.assigned, self._context.image(), metadata=bytes(protocol.metadata)
            ),
        )
        return CoordinatorResult(replies=[(ticket, response)])

    # Heartbeat.

    def heartbeat(
        self, group: Group, request: HeartbeatRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        assert isinstance(group, ConsumerGroup), group
        code = ErrorCode.NONE
        try:
            member = _member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            self._extend(group, member, now_ms)
            if self._has_to_join_again(group, member):
                code = ErrorCode.REBALANCE_IN_PROGRESS
                self._groups.start_step_timeout(group.group_id, member, now_ms)
        except Rejected as rejection:
            code = rejection.code
        return CoordinatorResult(
            replies=((ticket, HeartbeatResponse(error_code=code)),), waits=False
        )

    def _has_to_join_again(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        match member.state:
            case MemberState.UNREVOKED_PARTITIONS:
                return True
            case MemberState.UNRELEASED_PARTITIONS if not group.is_waiting(member):
                return True
            case _:
                pass
        if member.epoch < group.target_epoch:
            return True
        if member.epoch == group.epoch and not group.is_stale:
            return False
        if any(other.classic is None for other in group.members.values()):
            return False  # That member's heartbeat computes the next target.
        if member.epoch < group.epoch:
            settings = self._groups.settings(group.group_id)
            return not settings.is_too_early(group.target_ms, self._context.wall_ms())
        found = metadata_hash(group.topic_names(), self._context.image())
        group.is_stale = found != group.metadata_hash
        return group.is_stale

    # LeaveGroup.

    def leave(
        self, group: Group, request: LeaveGroupRequest, ticket: Ticket, now_ms: int
    ) -> CoordinatorResult:
        assert isinstance(group, ConsumerGroup), group
        responses = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in request.members:
            response = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            responses.append(response)
            try:
                member = _find_leaving_member(group, identity)
                leaving[member.member_id] = member
            except Rejected as rejection:
                response.error_code = rejection.code
        reply = (ticket, LeaveGroupResponse(members=responses))
        if not leaving:
            return CoordinatorResult(replies=[reply])
        outcome = self._groups.remove(group, list(leaving.values()), now_ms)
        outcome.replies = [reply]
        return outcome

    def _extend(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        assert member.classic is not None, member
        self._groups.extend_session(
            group.group_id, member.member_id, now_ms, member.classic.session_timeout_ms
        )


def _check_protocols(
    group: ConsumerGroup, request: JoinGroupRequest
) -> ConsumerProtocolSubscription:
    """Checks that all classic members have a protocol in common, which a downgrade requires."""
    names = set(protocols_of(request))
    subscription = None
    if request.protocol_type == CONSUMER_PROTOCOL and names:
        for member in group.members.values():
            if member.classic is not None and member.member_id != request.member_id:
                names &= {protocol.name for protocol in member.classic.supported_protocols}
        subscription = subscription_of(bytes(request.protocols[0].metadata))
    if not names or subscription is None:
        raise Rejected(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {request.member_id}'s protocols are not supported.",
        )
    return subscription


def _update_member(
    old: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    client: Client,
) -> ConsumerMember:
    return old._replace(
        instance_id=request.group_instance_id or old.instance_id,
        rack=subscription.rack_id or old.rack,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        client_id=client.client_id,
        client_host=client.host,
        classic=classic_metadata(request.session_timeout_ms, protocols_of(request)),
    )


def _reported_partitions(
    topics: Iterable[TopicPartition], image: MetadataImage
) -> dict[UUID, list[int]]:
    ids = image.topic_ids
    return {ids[topic.topic]: topic.partitions for topic in topics if topic.topic in ids}


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = find_static_member(group, instance_id, member_id)
    return _check_classic(member)


def _find_leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is not None and not identity.member_id:
        # An admin client removes a static member without knowing its member id.
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {identity.group_instance_id} is unknown."
            )
        return member
    return _member(group, identity.member_id, identity.group_instance_id)


def _check_classic(member: ConsumerMember) -> ConsumerMember:
    if member.classic is None:
        raise Rejected(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise Rejected(
            ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is in epoch {member.epoch}, not in {generation}.",
        )
