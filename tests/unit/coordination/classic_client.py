"""A minimal classic consumer, for groups in which both protocols are used."""

from struct import Struct

from lograft.coordination.classic_member import Client
from lograft.coordination.classic_subscription import assignment_of
from lograft.wire.codec import write
from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lograft.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from lograft.wire.records.consumer_protocol_assignment import ConsumerProtocolAssignment
from lograft.wire.records.consumer_protocol_assignment import TopicPartition as Assigned
from lograft.wire.records.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.unit.coordination.consumer_client import Shard

VERSION = Struct(">h")
Named = dict[str, list[int]]


class ClassicConsumer:
    """Eager members revoke all partitions before they join; cooperative members send their owned
    partitions, and revoke those that are not assigned to them again."""

    def __init__(self, shard: Shard, name: str, group_id: str = "g") -> None:
        self.shard = shard
        self.name = name
        self.group_id = group_id
        self.member_id = ""
        self.instance_id: str | None = None
        self.generation = -1
        self.topics: list[str] = []
        self.protocols = ["range"]
        self.is_cooperative = False
        self.has: Named = {}

    def join(self, *, session_ms: int = 10_000, rebalance_ms: int = 30_000) -> None:
        """Retries with the id from the response; may be parked."""
        if not self.is_cooperative:
            self.has = {}
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[
                TopicPartition(topic=topic, partitions=found) for topic, found in self.has.items()
            ],
            generation_id=self.generation,
        )
        metadata = VERSION.pack(3) + write(subscription, 3)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols
            ],
        )
        client = Client(client_id=self.name, host="/127.0.0.1", api_version=9)
        self.shard.ask(
            self.name,
            lambda shard, ticket, now_ms: shard.classic.join(request, client, ticket, now_ms),
        )

    def joined(self, answer: JoinGroupResponse) -> None:
        if answer.member_id:
            self.member_id = answer.member_id
        if not answer.error_code:
            self.generation = answer.generation_id

    def sync(
        self, assigned: dict[str, Named] | None = None, user_data: bytes | None = None
    ) -> None:
        """Sends the leader's assignment, by member id."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocols[0],
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encoded(found, user_data)
                )
                for member_id, found in (assigned or {}).items()
            ],
        )
        self.shard.ask(
            self.name, lambda shard, ticket, now_ms: shard.classic.sync(request, ticket, now_ms)
        )

    def synced(self, answer: SyncGroupResponse) -> None:
        if not answer.error_code:
            assignment = assignment_of(bytes(answer.assignment))
            assert assignment is not None
            self.has = {
                partition.topic: partition.partitions
                for partition in assignment.assigned_partitions
            }

    def beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.shard.ask(
            self.name,
            lambda shard, ticket, now_ms: shard.classic.heartbeat(request, ticket, now_ms),
        )

    def leave(self, *, by_instance: bool = False) -> None:
        identity = MemberIdentity(
            member_id="" if by_instance else self.member_id, group_instance_id=self.instance_id
        )
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        self.shard.ask(
            self.name, lambda shard, ticket, now_ms: shard.classic.leave(request, ticket, now_ms)
        )


def encoded(partitions: Named, user_data: bytes | None = None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            Assigned(topic=topic, partitions=found) for topic, found in partitions.items()
        ],
        user_data=user_data,
    )
    return VERSION.pack(3) + write(message, 3)
