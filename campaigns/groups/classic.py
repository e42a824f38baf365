"""A member of a classic group: joins, lets the leader assign, beats its heart, begins again."""

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
#: An answer to a join comes when all have joined, or the slowest is given up.
JOIN_TIMEOUT_MS: Final = 6_000
BEAT_SECONDS: Final = 0.3
PROTOCOL_VERSION: Final = 0
_VERSION: Final = Struct(">h")
#: After these the member is not known any more: it joins under a new id.
FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class ClassicMember(Membership):
    def __init__(self, around: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        super().__init__(around, plan, subscribed)
        self._session_ms = around.random.choice(SESSION_MS)
        self._join_version = around.random.choice(JOIN_VERSIONS)
        self._is_stable = False
        self._last_beat = 0.0

    async def keep(self) -> None:
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
        answer = await self.ask(
            "leave", request, LEAVE_VERSION, leaving.LeaveGroupResponse,
            asked={"member": member_id},
        )  # fmt: skip
        code = answer.error_code or answer.members[0].error_code
        if code:
            self.refused("leave", code)
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
                    name="range", metadata=_subscription(self.subscribed)
                )
            ],
        )
        answer = await self.ask(
            "join",
            request,
            version,
            joining.JoinGroupResponse,
            asked={"member": self.member_id, "instance": self.instance_id},
            timeout_ms=JOIN_TIMEOUT_MS,
        )
        if answer.error_code:
            self.refused("join", answer.error_code)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                self._heed(answer.error_code)
            return
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        self.ok("join", member=self.member_id, epoch=self.epoch, leader=answer.leader)
        await self._sync(answer)

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
        answer = await self.ask(
            "sync",
            request,
            SYNC_VERSION,
            syncing.SyncGroupResponse,
            asked={
                "member": self.member_id, "epoch": self.epoch, "instance": self.instance_id,
            },
            timeout_ms=JOIN_TIMEOUT_MS,
        )  # fmt: skip
        if answer.error_code:
            self.refused("sync", answer.error_code)
            self._heed(answer.error_code)
            return
        self.assigned = _assigned(answer.assignment)
        self.ok("sync", assigned=[f"{topic}-{index}" for topic, index in self.assigned])
        self._is_stable = True

    def _assign(self, members: list[str]) -> list[syncing.SyncGroupRequestAssignment]:
        """Each partition to one of them, in turn."""
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        turn = 0
        for topic in self.subscribed:
            for index in range(self.around.topics[topic].partitions):
                shares[members[turn % len(members)]].setdefault(topic, []).append(index)
                turn += 1
        return [
            syncing.SyncGroupRequestAssignment(member_id=member, assignment=_assignment(share))
            for member, share in shares.items()
        ]

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = await self.ask(
            "beat", request, HEARTBEAT_VERSION, HeartbeatResponse,
            asked={"member": self.member_id, "epoch": self.epoch},
        )  # fmt: skip
        if answer.error_code:
            self.refused("beat", answer.error_code)
            self._heed(answer.error_code)
        else:
            self.ok("beat")

    def _heed(self, code: int) -> None:
        if code in FORGOTTEN:
            self.member_id = ""
        if code in FORGOTTEN or code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ):
            self.lose_all()
            self._is_stable = False

    def on_commit(self, code: int) -> None:
        self._heed(code)


def _subscription(topics: list[str]) -> bytes:
    return _VERSION.pack(PROTOCOL_VERSION) + codec.write(
        ConsumerProtocolSubscription(topics=topics), PROTOCOL_VERSION
    )


def _assignment(share: dict[str, list[int]]) -> bytes:
    topics = [TopicPartition(topic=topic, partitions=each) for topic, each in share.items()]
    return _VERSION.pack(PROTOCOL_VERSION) + codec.write(
        ConsumerProtocolAssignment(assigned_partitions=topics), PROTOCOL_VERSION
    )


def _assigned(data: bytes) -> list[Place]:
    if not data:
        return []
    found, _ = codec.read(ConsumerProtocolAssignment, PROTOCOL_VERSION, data, _VERSION.size)
    return [(each.topic, index) for each in found.assigned_partitions for index in each.partitions]
