"""A member of a group of the consumer protocol (KIP-848): one kind of heartbeat does everything."""

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
#: A static member means to come back.
LEAVE_TEMPORARILY: Final = -2
REBALANCE_MS: Final = 2_000
BEAT_SECONDS: Final = 0.25
#: After these the member has nothing and joins again.
FENCED: Final = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
})  # fmt: skip


class ConsumerMember(Membership):
    def __init__(self, around: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        super().__init__(around, plan, subscribed)
        self._names = {plan.topic_id: plan.name for plan in around.topics.values()}
        self._ids = {plan.name: plan.topic_id for plan in around.topics.values()}
        self._assignor = around.random.choice((None, "uniform", "range"))
        self._become_new()
        self._last_beat = 0.0
        #: Something is to be told to the coordinator, or was and nobody knows whether it heard.
        self._must_tell = True

    def _become_new(self) -> None:
        self.member_id = str(UUID(bytes=self.around.random.randbytes(16), version=4))
        self.epoch = JOIN

    async def keep(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._must_tell or now - self._last_beat >= BEAT_SECONDS:
            self._last_beat = now
            await self._beat(self.epoch)

    async def leave(self) -> None:
        self.lose_all()
        if self.epoch > JOIN:
            await self._beat(LEAVE if self.instance_id is None else LEAVE_TEMPORARILY)
        self._become_new()

    async def _beat(self, epoch: int) -> None:
        is_full = self._must_tell or epoch <= JOIN
        owns = [f"{topic}-{index}" for topic, index in self.assigned] if is_full else None
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=self.subscribed if is_full else None,
            server_assignor=self._assignor if is_full else None,
            topic_partitions=self._owned() if is_full else None,
        )
        asked: dict[str, Any] = {"member": self.member_id, "epoch": epoch, "owns": owns}
        self._must_tell = True
        answer = await self.ask(
            "beat", request, VERSION, beating.ConsumerGroupHeartbeatResponse, asked=asked
        )
        if answer.error_code:
            self._refused(answer.error_code)
            raise TurnOver
        if epoch < JOIN:
            self.ok("beat", epoch=answer.member_epoch, assigned=None)
            return
        self._must_tell = False
        self.epoch = answer.member_epoch
        told = None if answer.assignment is None else self._read(answer.assignment)
        self.ok(
            "beat",
            epoch=self.epoch,
            assigned=None if told is None else [f"{topic}-{index}" for topic, index in told],
        )
        if told is not None and told != self.assigned:
            # What it may not use any more is given up before the next heartbeat says so.
            self.assigned = told
            self._must_tell = True

    def _refused(self, code: int) -> None:
        self.refused("beat", code)
        if code in FENCED:
            self.lose_all()
            self.epoch = JOIN
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._become_new()

    def _owned(self) -> list[beating.ConsumerGroupHeartbeatRequestTopicPartitions]:
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
        """The next heartbeat tells."""
