"""A member of a consumer group (KIP-848), which uses only ConsumerGroupHeartbeat."""

import asyncio
from typing import Any, Final
from uuid import UUID

from campaigns.groups.membership import ActorContext, Membership, Place, TurnOver
from campaigns.groups.plan import ActorPlan
from lograft.model.errors import ErrorCode
from lograft.wire.messages import consumer_group_heartbeat as beating

VERSION: Final = 1
JOIN: Final = 0
LEAVE: Final = -1
#: A static member leaves temporarily.
LEAVE_TEMPORARILY: Final = -2
REBALANCE_MS: Final = 2_000
BEAT_SECONDS: Final = 0.25
#: Error codes after which the member has no assignment and joins again.
FENCED: Final = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
})  # fmt: skip


class ConsumerMember(Membership):
    def __init__(self, context: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        super().__init__(context, plan, subscribed)
        self._names = {plan.topic_id: plan.name for plan in context.topics.values()}
        self._ids = {plan.name: plan.topic_id for plan in context.topics.values()}
        self._assignor = context.random.choice((None, "uniform", "range"))
        self._reset_identity()
        self._last_beat = 0.0
        #: Whether the next heartbeat must contain all fields: they have changed, or the outcome of
        #: the last heartbeat is unknown.
        self._must_send_all = True

    def _reset_identity(self) -> None:
        self.member_id = str(UUID(bytes=self.context.random.randbytes(16), version=4))
        self.epoch = JOIN

    async def maintain(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._must_send_all or now - self._last_beat >= BEAT_SECONDS:
            self._last_beat = now
            await self._beat(self.epoch)

    async def leave(self) -> None:
        self.lose_all()
        if self.epoch > JOIN:
            await self._beat(LEAVE if self.instance_id is None else LEAVE_TEMPORARILY)
        self._reset_identity()

    async def _beat(self, epoch: int) -> None:
        is_full = self._must_send_all or epoch <= JOIN
        owns = [f"{topic}-{index}" for topic, index in self.assigned] if is_full else None
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=self.subscribed if is_full else None,
            server_assignor=self._assignor if is_full else None,
            topic_partitions=self._owned_partitions() if is_full else None,
        )
        arguments: dict[str, Any] = {"member": self.member_id, "epoch": epoch, "owns": owns}
        self._must_send_all = True
        response = await self.request(
            "beat", request, VERSION, beating.ConsumerGroupHeartbeatResponse, arguments=arguments
        )
        if response.error_code:
            self._on_error(response.error_code)
            raise TurnOver
        if epoch < JOIN:
            self.ok("beat", epoch=response.member_epoch, assigned=None)
            return
        self._must_send_all = False
        self.epoch = response.member_epoch
        partitions = None if response.assignment is None else self._read(response.assignment)
        self.ok(
            "beat",
            epoch=self.epoch,
            assigned=None
            if partitions is None
            else [f"{topic}-{index}" for topic, index in partitions],
        )
        if partitions is not None and partitions != self.assigned:
            # Revoked partitions are released before the next heartbeat reports it.
            self.assigned = partitions
            self._must_send_all = True

    def _on_error(self, code: int) -> None:
        self.on_error("beat", code)
        if code in FENCED:
            self.lose_all()
            self.epoch = JOIN
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._reset_identity()

    def _owned_partitions(self) -> list[beating.ConsumerGroupHeartbeatRequestTopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.assigned:
            by_topic.setdefault(topic, []).append(index)
        return [
            beating.ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self._ids[topic], partitions=indexes
            )
            for topic, indexes in by_topic.items()
        ]

    def _read(self, assignment: beating.Assignment) -> list[Place]:
        return [
            (self._names[each.topic_id], index)
            for each in assignment.topic_partitions
            for index in each.partitions
        ]

    def on_commit(self, code: int) -> None:
        """Does nothing: the next heartbeat reports the membership."""
