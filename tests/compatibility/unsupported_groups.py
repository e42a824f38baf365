"""Share groups and streams groups, which Lograft keeps but does not serve yet: how a test creates
them on Apache Kafka, and what both servers answer to requests under such a group id.
"""

import socket
import time
from typing import Any, Final

from lograft.coordination.classic_subscription import CONSUMER_PROTOCOL
from lograft.model.errors import ErrorCode
from lograft.wire.codec import write
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lograft.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from lograft.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from lograft.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from lograft.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from lograft.wire.messages.sync_group import SyncGroupRequest
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lograft.wire.records.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.compatibility.raw_requests import ask

JOIN: Final = 0
LEAVE: Final = -1
ANSWER_SECONDS_MAX: Final = 20.0
#: Member ids of the consumer, share and streams protocols are made by the clients.
MEMBER_ID: Final = "bWVtYmVyLW9mLXRlc3RzLQ"
#: Answers that a coordinator gives while it is not ready.
NOT_READY: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def await_coordinator(connection: socket.socket, group_id: str) -> None:
    """FindCoordinator creates `__consumer_offsets`."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    while True:
        answer = ask(connection, request, 4)
        assert isinstance(answer, FindCoordinatorResponse)
        if not answer.coordinators[0].error_code:
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def share_heartbeat(
    connection: socket.socket, group_id: str, topic: str, *, epoch: int = JOIN
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group_id,
        member_id=MEMBER_ID,
        member_epoch=epoch,
        subscribed_topic_names=[topic] if epoch == JOIN else None,
    )
    answer = _ask_ready(connection, request, 1)
    assert isinstance(answer, ShareGroupHeartbeatResponse)
    return answer


def streams_heartbeat(
    connection: socket.socket, group_id: str, topic: str, *, epoch: int = JOIN
) -> StreamsGroupHeartbeatResponse:
    topology = Topology(
        epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]
    )
    is_join = epoch == JOIN
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=MEMBER_ID,
        member_epoch=epoch,
        rebalance_timeout_ms=300_000 if is_join else -1,
        topology=topology if is_join else None,
        active_tasks=[] if is_join else None,
        standby_tasks=[] if is_join else None,
        warmup_tasks=[] if is_join else None,
        process_id="process" if is_join else None,
        client_tags=[] if is_join else None,
    )
    answer = _ask_ready(connection, request, 0)
    assert isinstance(answer, StreamsGroupHeartbeatResponse)
    return answer


def _ask_ready(connection: socket.socket, request: Message, version: int) -> Message:
    """Loading a partition takes a coordinator a moment."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        answer = ask(connection, request, version)
        if getattr(answer, "error_code", 0) not in NOT_READY or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def streams_commit(
    connection: socket.socket, group_id: str, topic: str, offset: int, *, epoch: int
) -> None:
    request = _commit(group_id, topic, epoch, offset=offset)
    answer = _ask_ready(connection, request, 9)
    assert _partitions(answer) == [("NONE", None)]


def answers_under(
    connection: socket.socket, group_id: str, topic: str, *, member_id: str = MEMBER_ID
) -> dict[str, Any]:
    """What every request that names a group answers; none of them changes a group of another
    type."""
    requests: dict[str, tuple[Message, int]] = {
        "join": (_join(group_id, ""), 9),
        "join with a member id": (_join(group_id, member_id), 9),
        "consumer join": (
            ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=JOIN,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            ),
            1,
        ),
        "consumer heartbeat": (
            ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=1),
            1,
        ),
        "consumer leave": (
            ConsumerGroupHeartbeatRequest(
                group_id=group_id, member_id=member_id, member_epoch=LEAVE
            ),
            1,
        ),
        "sync": (
            SyncGroupRequest(
                group_id=group_id,
                generation_id=1,
                member_id=member_id,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name="range",
            ),
            5,
        ),
        "heartbeat": (
            HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member_id),
            4,
        ),
        "leave": (
            LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)]),
            5,
        ),
        "delete offsets": (
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                    )
                ],
            ),
            0,
        ),
        "describe classic": (DescribeGroupsRequest(groups=[group_id]), 6),
        "describe classic v5": (DescribeGroupsRequest(groups=[group_id]), 5),
        "describe consumer": (ConsumerGroupDescribeRequest(group_ids=[group_id]), 1),
    }
    for epoch in (-1, 1):
        for version in (8, 9):
            requests[f"commit v{version} in {epoch}"] = (_commit(group_id, topic, epoch), version)
        requests[f"transactional commit in {epoch}"] = (
            _transactional_commit(group_id, topic, epoch),
            4,
        )
    for epoch in (-1, 1):
        requests[f"fetch offsets in {epoch}"] = (_fetch(group_id, topic, epoch), 9)
    answers = {
        what: _shown(_ask_ready(connection, request, version))
        for what, (request, version) in requests.items()
    }
    return answers | {"list": listed(connection).get(group_id)}


def listed(connection: socket.socket, **filters: list[str]) -> dict[str, tuple[str, str, str]]:
    """Group id → type, state and protocol type."""
    answer = ask(connection, ListGroupsRequest(**filters), 5)
    assert isinstance(answer, ListGroupsResponse)
    return {
        group.group_id: (group.group_type, group.group_state, group.protocol_type)
        for group in answer.groups
    }


def _shown(answer: Message) -> Any:
    """Errors by name; offsets and messages where there are some."""
    if isinstance(answer, DescribeGroupsResponse | ConsumerGroupDescribeResponse):
        (described,) = answer.groups
        return ErrorCode(described.error_code).name, described.group_state, described.error_message
    groups = getattr(answer, "groups", None)
    if groups:
        (group,) = groups
        return ErrorCode(group.error_code).name, _partitions(group)
    if getattr(answer, "topics", None):
        return _partitions(answer)
    if isinstance(answer, LeaveGroupResponse):
        return [ErrorCode(member.error_code).name for member in answer.members]
    code = ErrorCode(getattr(answer, "error_code", 0)).name
    message = getattr(answer, "error_message", None)
    return code if message is None else (code, message)


def _partitions(answer: Any) -> list[tuple[str, int | None]]:
    return [
        (ErrorCode(partition.error_code).name, getattr(partition, "committed_offset", None))
        for topic in answer.topics
        for partition in topic.partitions
    ]


def _join(group_id: str, member_id: str) -> JoinGroupRequest:
    subscription = b"\x00\x01" + write(ConsumerProtocolSubscription(topics=["any"]), 1)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type=CONSUMER_PROTOCOL,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )


def _commit(group_id: str, topic: str, epoch: int, *, offset: int = 1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id="" if epoch < 0 else MEMBER_ID,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )


def _transactional_commit(group_id: str, topic: str, epoch: int) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="none",
        group_id=group_id,
        producer_id=7_000,
        producer_epoch=0,
        generation_id=epoch,
        member_id="" if epoch < 0 else MEMBER_ID,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=""
                    )
                ],
            )
        ],
    )


def _fetch(group_id: str, topic: str, epoch: int) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                member_id=None if epoch < 0 else MEMBER_ID,
                member_epoch=epoch,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
            )
        ]
    )
