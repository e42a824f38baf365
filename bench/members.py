"""Group members of the load generator: requests and responses of both protocols without a client
library. A rebalance sends a member back to JoinGroup. A stable member sends the same heartbeat once
per interval."""

import random
import struct
from typing import Final
from uuid import UUID

from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
CONSUMER_VERSION: Final = 1
PROTOCOL_TYPE: Final = "consumer"
PROTOCOL_NAME: Final = "range"
SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 300_000
#: Size of a subscription to one topic, and of an assignment of a few partitions.
METADATA: Final = bytes(40)
ASSIGNMENT: Final = bytes(60)
#: Position of the error code: after correlation id, tags and throttle time.
ERROR_POSITION: Final = 9
BODY_POSITION: Final = 5

MEMBER_ID_REQUIRED: Final = 79
REBALANCE_IN_PROGRESS: Final = 27
#: Errors of a coordinator that is loading, is not available yet, or has moved.
PASSING: Final = (14, 15, 16)
RETRY_SECONDS: Final = 0.1


class MemberFailed(Exception):
    """The server responded with an error that a member cannot recover from."""


class ClassicMember:
    """Sends JoinGroup, SyncGroup, then heartbeats; the leader gives all members the same
    assignment."""

    def __init__(self, group: str, *, period_seconds: float) -> None:
        self._group = group
        self._period_seconds = period_seconds
        self._id = ""
        self.generation = -1
        #: A member is stable once its heartbeats succeed.
        self.is_steady = False
        self._answer = self._on_joined
        self.frame = self._join_frame()

    def on_response(self, response: memoryview) -> float:
        return self._answer(response)

    def _on_joined(self, response: memoryview) -> float:
        answer = read_all(JoinGroupResponse, JOIN_VERSION, response, BODY_POSITION)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            return self._rejoin()
        if answer.error_code in PASSING:
            return RETRY_SECONDS
        check(answer.error_code, "JoinGroup")
        self.generation = answer.generation_id
        members = [member.member_id for member in answer.members]
        self.frame = frame_request(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self._id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL_NAME,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member, assignment=ASSIGNMENT)
                    for member in members
                ],
            ),
            SYNC_VERSION,
            correlation_id=1,
            client_id="bench",
        )
        self._answer = self._on_synced
        return 0.0

    def _on_synced(self, response: memoryview) -> float:
        answer = read_all(SyncGroupResponse, SYNC_VERSION, response, BODY_POSITION)
        if answer.error_code == REBALANCE_IN_PROGRESS:
            return self._rejoin()
        check(answer.error_code, "SyncGroup")
        assert answer.assignment == ASSIGNMENT
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self._id
        )
        self.frame = frame_request(request, HEARTBEAT_VERSION, correlation_id=1, client_id="bench")
        self._answer = self._on_heartbeat
        self.is_steady = True
        return random.random() * self._period_seconds

    def _on_heartbeat(self, response: memoryview) -> float:
        (code,) = struct.unpack_from(">h", response, ERROR_POSITION)
        if code == REBALANCE_IN_PROGRESS:
            return self._rejoin()
        check(code, "Heartbeat")
        return self._period_seconds

    def _rejoin(self) -> float:
        self.is_steady = False
        self._answer = self._on_joined
        self.frame = self._join_frame()
        return 0.0

    def _join_frame(self) -> bytes:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=METADATA)],
        )
        return frame_request(request, JOIN_VERSION, correlation_id=1, client_id="bench")


class ConsumerMember:
    """Sends ConsumerGroupHeartbeat (KIP-848): changes immediately, otherwise once per interval."""

    def __init__(self, group: str, number: int, *, topic: str, period_seconds: float) -> None:
        self._group = group
        self._id = str(UUID(int=number + 1))
        self._period_seconds = period_seconds
        self._last = b""
        self.generation = 0
        self.owned: dict[UUID, list[int]] = {}
        self.is_steady = False
        self.frame = self._frame(
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    def on_response(self, response: memoryview) -> float:
        if response == self._last:
            return self._period_seconds
        answer = read_all(ConsumerGroupHeartbeatResponse, CONSUMER_VERSION, response, BODY_POSITION)
        if answer.error_code in PASSING:
            return RETRY_SECONDS
        check(answer.error_code, f"ConsumerGroupHeartbeat ({answer.error_message})")
        self._last = bytes(response)
        self.is_steady = answer.assignment is None
        self.generation = answer.member_epoch
        if answer.assignment is None:
            self.frame = self._frame()
            return random.random() * self._period_seconds
        self.owned = {
            partition.topic_id: partition.partitions
            for partition in answer.assignment.topic_partitions
        }
        owned = [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in self.owned.items()
        ]
        self.frame = self._frame(topic_partitions=owned)
        return 0.0

    def _frame(
        self,
        *,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None,
    ) -> bytes:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=self.generation,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=subscribed_topic_names,
            topic_partitions=topic_partitions,
        )
        return frame_request(request, CONSUMER_VERSION, correlation_id=1, client_id="bench")


def check(code: int, what: str) -> None:
    if code:
        raise MemberFailed(f"{what} was answered with error {code}")
