"""A member of a classic group: joins, syncs, sends heartbeats, and rejoins."""

import asyncio
from struct import Struct
from typing import Final

from campaigns.groups.membership import ActorContext, Membership, Place
from campaigns.groups.plan import ActorPlan
from lograft.model.errors import ErrorCode
from lograft.wire import codec
from lograft.wire.messages import join_group as joining
from lograft.wire.messages import leave_group as leaving
from lograft.wire.messages import sync_group as syncing
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from lograft.wire.records.consumer_protocol_subscription import ConsumerProtocolSubscription

JOIN_VERSIONS: Final = (5, 7, 9)
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 5
SESSION_MS: Final = (1_000, 2_500)
REBALANCE_MS: Final = 2_000
#: A join is answered when all members have joined, or the slowest is removed.
JOIN_TIMEOUT_MS: Final = 6_000
BEAT_SECONDS: Final = 0.3
PROTOCOL_VERSION: Final = 0
_VERSION: Final = Struct(">h")
#: Error codes after which the coordinator has removed the member: it joins with a new ID.
REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class ClassicMember(Membership):
    def __init__(self, context: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        super().__init__(context, plan, subscribed)
        self._session_ms = context.random.choice(SESSION_MS)
        self._join_version = context.random.choice(JOIN_VERSIONS)
        self._is_stable = False
        self._last_beat = 0.0

    async def maintain(self) -> None:
        if not self._is_stable:
            self.lose_all()
            await self._join()
            return
        now = asyncio.get_running_loop().time()
        if now - self._last_beat >= BEAT_SECONDS:
            self._last_beat = now
            await self._beat()

    async def leave(self) -> None:
        self.lose_all()
        member_id, self._is_stable = self.member_id, False
        if not member_id:
            return
        self.member_id = ""
        request = leaving.LeaveGroupRequest(
            group_id=self.group,
            members=[
                leaving.MemberIdentity(member_id=member_id, group_instance_id=self.instance_id)
            ],
        )
        response = await self.request(
            "leave", request, LEAVE_VERSION, leaving.LeaveGroupResponse,
            arguments={"member": member_id},
        )  # fmt: skip
        code = response.error_code or response.members[0].error_code
        if code:
            self.on_error("leave", code)
        else:
            self.ok("leave")

    async def _join(self) -> None:
        version = self._join_version
        request = joining.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                joining.JoinGroupRequestProtocol(
                    name="range", metadata=_encode_subscription(self.subscribed)
                )
            ],
        )
        response = await self.request(
            "join",
            request,
            version,
            joining.JoinGroupResponse,
            arguments={"member": self.member_id, "instance": self.instance_id},
            timeout_ms=JOIN_TIMEOUT_MS,
        )
        if response.error_code:
            self.on_error("join", response.error_code)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            else:
                self._handle_error(response.error_code)
            return
        self.member_id, self.epoch = response.member_id, response.generation_id
        self.ok("join", member=self.member_id, epoch=self.epoch, leader=response.leader)
        await self._sync(response)

    async def _sync(self, joined: joining.JoinGroupResponse) -> None:
        assignments: list[syncing.SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = self._assign([each.member_id for each in joined.members])
        request = syncing.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        response = await self.request(
            "sync",
            request,
            SYNC_VERSION,
            syncing.SyncGroupResponse,
            arguments={
                "member": self.member_id, "epoch": self.epoch, "instance": self.instance_id,
            },
            timeout_ms=JOIN_TIMEOUT_MS,
        )  # fmt: skip
        if response.error_code:
            self.on_error("sync", response.error_code)
            self._handle_error(response.error_code)
            return
        self.assigned = _decode_assignment(response.assignment)
        self.ok("sync", assigned=[f"{topic}-{index}" for topic, index in self.assigned])
        self._is_stable = True

    def _assign(self, members: list[str]) -> list[syncing.SyncGroupRequestAssignment]:
        """Assigns the partitions to the members round robin."""
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        number = 0
        for topic in self.subscribed:
            for index in range(self.context.topics[topic].partitions):
                shares[members[number % len(members)]].setdefault(topic, []).append(index)
                number += 1
        return [
            syncing.SyncGroupRequestAssignment(
                member_id=member, assignment=_encode_assignment(share)
            )
            for member, share in shares.items()
        ]

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        response = await self.request(
            "beat", request, HEARTBEAT_VERSION, HeartbeatResponse,
            arguments={"member": self.member_id, "epoch": self.epoch},
        )  # fmt: skip
        if response.error_code:
            self.on_error("beat", response.error_code)
            self._handle_error(response.error_code)
        else:
            self.ok("beat")

    def _handle_error(self, code: int) -> None:
        if code in REMOVED:
            self.member_id = ""
        if code in REMOVED or code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ):
            self.lose_all()
            self._is_stable = False

    def on_commit(self, code: int) -> None:
        self._handle_error(code)


def _encode_subscription(topics: list[str]) -> bytes:
    return _VERSION.pack(PROTOCOL_VERSION) + codec.write(
        ConsumerProtocolSubscription(topics=topics), PROTOCOL_VERSION
    )


def _encode_assignment(share: dict[str, list[int]]) -> bytes:
    topics = [TopicPartition(topic=topic, partitions=each) for topic, each in share.items()]
    return _VERSION.pack(PROTOCOL_VERSION) + codec.write(
        ConsumerProtocolAssignment(assigned_partitions=topics), PROTOCOL_VERSION
    )


def _decode_assignment(data: bytes) -> list[Place]:
    if not data:
        return []
    decoded, _ = codec.read(ConsumerProtocolAssignment, PROTOCOL_VERSION, data, _VERSION.size)
    return [
        (each.topic, index) for each in decoded.assigned_partitions for index in each.partitions
    ]
