"""ConsumerGroupHeartbeat: join, heartbeat and leave.

A heartbeat without changes, from a member that is reconciled to its target, costs only two lookups
and a response. All others are handled as changes (`consumer_change`).
"""

from typing import Final
from uuid import UUID

from lograft.coordination.classic_member import Client
from lograft.coordination.consumer_change import MemberChange
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_groups import ConsumerGroups
from lograft.coordination.consumer_member import (
    JOIN,
    LEAVE,
    LEAVE_TEMPORARILY,
    NOTHING_OWNED,
    ConsumerMember,
    Owned,
)
from lograft.coordination.consumer_records import current_assignment_record
from lograft.coordination.consumer_settings import ConsumerSettings
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.uuids import uuid_to_text
from lograft.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

#: From this version on, members generate their own id (KIP-1082).
OWN_MEMBER_ID_VERSION: Final = 1


def heartbeat(
    groups: ConsumerGroups,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    ticket: Ticket,
    now_ms: int,
) -> CoordinatorResult:
    try:
        if request.member_epoch < 0:
            _check_request(request, client.api_version)
            return _leave(groups, request, ticket, now_ms)
        group = groups.shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            member = group.members.get(request.member_id)
            if member is not None and _is_unchanged(request, client, group, member):
                return _build_response(
                    groups, request, member, member, ticket=ticket, now_ms=now_ms
                )
        _check_request(request, client.api_version)
        return _change(groups, request, client, ticket=ticket, now_ms=now_ms)
    except Rejected as rejection:
        error = ConsumerGroupHeartbeatResponse(
            error_code=rejection.code, error_message=rejection.message
        )
        return CoordinatorResult(replies=[(ticket, error)], waits=False)


def _check_request(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Rejects requests that are invalid in any state of the group."""
    epoch = request.member_epoch
    must_have_id = version >= OWN_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE
    if must_have_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null"
                " when (re-)joining."
            )
    elif epoch == LEAVE_TEMPORARILY and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_TEMPORARILY:
        raise _invalid("MemberEpoch is invalid.")


def _is_unchanged(
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    member: ConsumerMember,
) -> bool:
    return (
        request.member_epoch == member.epoch
        and member.epoch == group.target_epoch == group.epoch
        and member.is_reconciled_to(group.target_epoch)
        and not group.is_stale
        and not group.resolved
        and member.classic is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id in (None, member.instance_id)
        and (request.instance_id is None) == (member.instance_id is None)
        and request.rack_id in (None, member.rack)
        and client.client_id == member.client_id
        and client.host == member.client_host
    )


def _change(
    groups: ConsumerGroups,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    *,
    ticket: Ticket,
    now_ms: int,
) -> CoordinatorResult:
    is_join = request.member_epoch == JOIN
    if is_join:
        group, records = groups.find_or_create_group(request.group_id)
    else:
        group, records = groups.group(request.group_id), []
    context = groups.change_context(request.group_id, client)
    member_id = request.member_id or uuid_to_text(groups.shard.context.new_uuid())
    check_size(group, member_id, context.settings)
    _check_assignor(request.server_assignor, context.settings)
    replaces: ConsumerMember | None = None
    if request.instance_id is not None:
        old, replaces = _static_member(group, member_id, request)
    elif is_join:
        old = group.members.get(member_id) or ConsumerMember(member_id)
    else:
        old = group.member(member_id)
        _check_epoch(old, request)
    change = MemberChange(
        group=group,
        context=context,
        old=old,
        new=_update_member(old, request, client),
        replaces=replaces,
        records=records,
    )
    member = change.apply(_reported_partitions(request))
    if member != change.new:
        groups.update_revocation_timeout(request.group_id, member, now_ms)
    outcome = _build_response(groups, request, old, member, ticket=ticket, now_ms=now_ms)
    outcome.records = change.records
    if is_join:
        outcome.replies = [*outcome.replies, *groups.on_upgrade_appended(request.group_id, now_ms)]
    return outcome


def _build_response(
    groups: ConsumerGroups,
    request: ConsumerGroupHeartbeatRequest,
    old: ConsumerMember,
    member: ConsumerMember,
    *,
    ticket: Ticket,
    now_ms: int,
) -> CoordinatorResult:
    settings = groups.settings(request.group_id)
    groups.extend_session(request.group_id, member.member_id, now_ms, settings.session_timeout_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )
    # A member that sends its full state may have lost its assignment, so it receives all of it.
    is_full_request = (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )
    if request.member_epoch == JOIN or is_full_request or member.assigned != old.assigned:
        response.assignment = _encode_assignment(member.assigned)
    return CoordinatorResult(replies=[(ticket, response)])


def _leave(
    groups: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, now_ms: int
) -> CoordinatorResult:
    group = groups.group(request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = find_static_member(group, request.instance_id, request.member_id)
    reply = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=request.member_epoch
    )
    if request.member_epoch == LEAVE_TEMPORARILY:
        left = member._replace(
            epoch=LEAVE_TEMPORARILY,
            assigned={t: dict.fromkeys(partitions, 0) for t, partitions in member.assigned.items()},
            revoking=NOTHING_OWNED,
        )
        # Only the session timer keeps running.
        groups.cancel_step_timeout(group.group_id, member.member_id)
        outcome = CoordinatorResult(records=[current_assignment_record(group.group_id, left)])
    else:
        outcome = groups.remove(group, [member], now_ms)
    outcome.replies = [(ticket, reply)]
    return outcome


def check_size(group: ConsumerGroup, member_id: str, settings: ConsumerSettings) -> None:
    if len(group.members) >= settings.members_max and member_id not in group.members:
        raise Rejected(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.members_max}"
            " members.",
        )


def _check_assignor(name: str | None, settings: ConsumerSettings) -> None:
    if name is not None and name not in settings.assignors:
        raise Rejected(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {name} is not supported. Supported assignors:"
            f" {', '.join(settings.assignors)}.",
        )


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    if epoch in (JOIN, member.epoch):
        return
    # The response that raised the epoch may be lost; then the member owns nothing beyond the
    # assignment.
    is_repeated = (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and request.topic_partitions is not None
        and all(
            partition in member.assigned.get(topic.topic_id, ())
            for topic in request.topic_partitions
            for partition in topic.partitions
        )
    )
    if not is_repeated:
        raise Rejected(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has the epoch {epoch}, but the group coordinator"
            f" expects {member.epoch}. The member must abandon all its partitions and rejoin.",
        )


def _static_member(
    group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member before this request, and the member that it replaces."""
    assert request.instance_id is not None
    if request.member_epoch != JOIN:
        member = find_static_member(group, request.instance_id, member_id)
        _check_epoch(member, request)
        return member, None
    present = group.static_member(request.instance_id)
    if present is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if present.epoch != LEAVE_TEMPORARILY and present.classic is None:
        raise Rejected(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the"
            f" group because the instance id is owned by member {present.member_id}.",
        )
    return present._replace(member_id=member_id, epoch=JOIN, previous_epoch=JOIN), present


def find_static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise Rejected(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member"
            f" {member.member_id}.",
        )
    return member


def _update_member(
    old: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerMember:
    """Applies the request; omitted fields keep their values."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return old._replace(
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack=old.rack if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=old.assignor if request.server_assignor is None else request.server_assignor,
        topics=old.topics if names is None else tuple(sorted(set(names))),
        regex=old.regex
        if request.subscribed_topic_regex is None
        else request.subscribed_topic_regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def _reported_partitions(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, list[int]] | None:
    topics = request.topic_partitions
    return None if topics is None else {topic.topic_id: topic.partitions for topic in topics}


def _encode_assignment(owned: Owned) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic_id, partitions=sorted(partitions)
            )
            for topic_id, partitions in owned.items()
        ]
    )


def _invalid(sentence: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, sentence)
