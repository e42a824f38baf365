"""A member of a KIP-848 group: the coordinator assigns, heartbeats carry everything.

A heartbeat says what has changed since the last one that was answered; after a failure it says
all. An answer with an assignment is what this member should have: the program's next call for
records lets go of what is not in it, takes what is new, and the next heartbeat says so.
"""

import asyncio
import logging
from typing import Final

from lograft.client.backoff import backoff_ms
from lograft.client.consuming.committed_offsets import Identity
from lograft.client.consuming.heartbeats import HeartbeatContent, member_id_of
from lograft.client.consuming.membership import Interest, MembershipContext
from lograft.client.errors import ClientError, UnsupportedByBroker, WrongUse, broker_error
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.seams import Task
from lograft.model.types import TopicIdPartition
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

LOGGER: Final = logging.getLogger(__name__)

_JOINING: Final = 0
_LEAVING: Final = -1
#: Of static members: they come again.
_LEAVING_FOR_NOW: Final = -2
#: Epoch of who is not in the group.
_OUT: Final = -1
_FIRST_INTERVAL_MS: Final = 3_000
#: The group goes on without us; our partitions are others'.
_FENCED: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))


class ConsumerGroup:
    def __init__(self, around: MembershipContext) -> None:
        self._around = around
        self._core = around.core
        self._settings = around.core.settings
        self._coordinator = around.coordinator
        self._handover = around.handover
        self._interest = Interest()
        self._member_id = member_id_of(self._core.runtime.randomness.uuid())
        #: Of the last heartbeat that was answered; _JOINING: the next one joins.
        self._epoch = _OUT
        self._interval_ms = _FIRST_INTERVAL_MS
        #: What the coordinator knows of us; None: nothing, so everything is to be said.
        self._told: HeartbeatContent | None = None
        #: What we should have, by topic id; None: as it is.
        self._target: frozenset[TopicIdPartition] | None = None
        #: Ids of the topics that we have partitions of.
        self._owned: frozenset[TopicIdPartition] = frozenset()
        self._is_lost = False
        self._error: ClientError | None = None
        self._wake = asyncio.Event()
        self._task: Task | None = None

    def identity(self) -> Identity:
        if self._epoch <= 0:
            return Identity(is_out=True)
        return Identity(self._member_id, self._epoch, self._settings.group_instance_id)

    def start(self) -> None:
        self._stop_listening = self._core.metadata.on_update(self._around.on_news)

    def subscribe(self, interest: Interest) -> None:
        self._interest = interest
        self._core.metadata.use_all_topics(False)
        self._core.metadata.set_topics(set(interest.topics) | self._owned_topics())
        if self._epoch == _OUT:
            self._epoch = _JOINING
        if self._task is None:
            self._task = self._core.runtime.spawn(self._keep_alive(), name="group heartbeats")
        self._wake.set()

    def rejoin(self, reason: str) -> None:
        raise WrongUse(
            "with group.protocol=consumer the coordinator decides when partitions move; members can"
            " ask for it with group.protocol=classic"
        )

    # ── in the program's call ────────────────────────────────────────────────────────────────

    def needs_serving(self) -> bool:
        return (
            self._is_lost
            or self._error is not None
            or self._target is not None
            or self._epoch == _OUT
        )

    async def serve(self) -> None:
        if self._is_lost:
            self._is_lost = False
            await self._handover.lose()
        if self._error is not None:
            raise self._error
        if self._epoch == _OUT and self._interest != Interest():
            # The program was too slow, and is back.
            self._epoch = _JOINING
            self._told = None
            self._wake.set()
        if self._target is not None:
            await self._reconcile()
        self._handover.raise_failure()

    async def _reconcile(self) -> None:
        """Makes what we have what we should have, if its topics are known by name."""
        target = self._target
        assert target is not None
        names = self._names_of(target)
        if names is None:
            return
        gone = self._handover.owned - names
        if gone:
            await self._handover.commit()
            await self._handover.revoke(gone)
        if target is not self._target:
            return  # Another one has come in the meantime.
        self._target = None
        self._owned = target
        LOGGER.info(
            "group %r: epoch %d gives %s",
            self._coordinator.key,
            self._epoch,
            ", ".join(map(str, sorted(names))) or "nothing",
        )
        await self._handover.give(names)
        self._wake.set()

    def _names_of(self, partitions: frozenset[TopicIdPartition]) -> set[TopicPartition] | None:
        """None: the cluster is asked for a topic that is not known here."""
        cache = self._core.metadata.cache
        topics = {one.topic_id: cache.topic_by_id(one.topic_id) for one in partitions}
        unknown = [topic_id for topic_id, topic in topics.items() if topic is None]
        if unknown:
            # They may have been matched by the server's pattern: names are known with all topics.
            if self._interest.pattern is not None:
                self._core.metadata.use_all_topics()
            self._core.metadata.request_update()
            return None
        return {
            TopicPartition(topic.name, one.partition)
            for one in partitions
            if (topic := topics[one.topic_id]) is not None
        }

    def _owned_topics(self) -> set[str]:
        return {one.topic for one in self._handover.owned}

    async def leave(self, reason: str, timeout_ms: int) -> None:
        deadline_ms = self._core.now_ms() + timeout_ms
        self._stop_listening()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._interest = Interest()
        if self._is_lost:
            await self._handover.lose()
        else:
            await self._handover.commit(timeout_ms)
            await self._handover.revoke(self._handover.owned)
        self._owned = frozenset()
        try:
            left_ms = max(0, deadline_ms - self._core.now_ms())
            async with asyncio.timeout(left_ms / 1000):
                await self._send_leave()
        except (ClientError, TimeoutError) as error:
            LOGGER.info("group %r was left without a word: %s", self._coordinator.key, error)

    # ── heartbeats, beside the program ───────────────────────────────────────────────────────

    async def _keep_alive(self) -> None:
        failures = 0
        while self._error is None:
            self._wake.clear()
            if self._epoch != _OUT:
                try:
                    if self._around.patience.is_over:
                        await self._give_up()
                    else:
                        await self._beat()
                    failures = 0
                except ClientError as error:
                    failures += 1
                    # It may have arrived, or its answer may be lost: the next one says all again.
                    self._told = None
                    self._on_failure(error)
            await self._wait(failures)

    async def _wait(self, failures: int) -> None:
        settings = self._settings
        wait_ms = self._around.patience.time_to_look_ms(self._interval_ms)
        if failures:
            wait_ms = backoff_ms(
                settings.retry_backoff_ms,
                settings.retry_backoff_max_ms,
                failures,
                self._core.runtime.randomness,
            )
            await asyncio.sleep(wait_ms / 1000)
            return
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _beat(self) -> None:
        epoch = self._epoch
        content = self._content()
        answer = await self._coordinator.request(
            self._request(epoch, content),
            ConsumerGroupHeartbeatResponse,
            at_least=1 if self._interest.pattern is not None else 0,
        )
        if answer.error_code:
            self._refused(answer)
            return
        self._told = content
        self._epoch = answer.member_epoch
        self._member_id = answer.member_id or self._member_id
        self._interval_ms = max(1, answer.heartbeat_interval_ms)
        if answer.assignment is not None:
            self._target = frozenset(
                TopicIdPartition(topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )
            self._around.on_news()
        if epoch == _JOINING:
            self._around.on_news()

    def _content(self) -> HeartbeatContent:
        pattern = self._interest.pattern
        return HeartbeatContent(
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            # An empty list is said where there are none: the coordinator keeps what it knows
            # when nothing is said.
            topics=tuple(sorted(self._interest.topics)),
            pattern=pattern or "",
            assignor=self._settings.group_remote_assignor,
            owned=self._owned,
        )

    def _request(self, epoch: int, content: HeartbeatContent) -> ConsumerGroupHeartbeatRequest:
        told = None if epoch == _JOINING else self._told
        return ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.key,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
            rack_id=(self._settings.client_rack or None) if told is None else None,
            **content.news_since(told),
        )

    def _refused(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        code = answer.error_code
        self._coordinator.forget_if_moved(code)
        if code in _FENCED:
            LOGGER.warning("group %r has gone on without this member", self._coordinator.key)
            self._lose(_JOINING)
            self._wake.set()
            return
        error = broker_error(
            code, f"heartbeat of group {self._coordinator.key!r}", answer.error_message
        )
        if code == ErrorCode.UNSUPPORTED_VERSION:
            # The API is there, but groups of this protocol are not (yet) switched on.
            raise UnsupportedByBroker(str(error)) from error
        raise error

    def _on_failure(self, error: ClientError) -> None:
        LOGGER.debug("heartbeat of group %r failed: %s", self._coordinator.key, error)
        if error.is_retriable:
            return
        if isinstance(error, UnsupportedByBroker):
            error = UnsupportedByBroker(f"{error}; group.protocol=classic is known to all")
        self._lose(_OUT)
        self._error = error
        self._around.on_news()

    def _lose(self, epoch: int) -> None:
        self._is_lost = True
        self._told = self._target = None
        # Who joins has nothing.
        self._owned = frozenset()
        self._epoch = epoch
        self._around.on_news()

    async def _give_up(self) -> None:
        LOGGER.warning(
            "the program has not called for records for more than max.poll.interval.ms (%d): it"
            " leaves group %r. Raise max.poll.interval.ms or lower max.poll.records",
            self._around.patience.limit_ms,
            self._coordinator.key,
        )
        try:
            await self._send_leave()
        finally:
            self._lose(_OUT)

    async def _send_leave(self) -> None:
        if self._epoch <= 0:
            return
        is_static = self._settings.group_instance_id is not None
        self._epoch = _OUT
        self._told = None
        answer = await self._coordinator.request(
            ConsumerGroupHeartbeatRequest(
                group_id=self._coordinator.key,
                member_id=self._member_id,
                member_epoch=_LEAVING_FOR_NOW if is_static else _LEAVING,
                instance_id=self._settings.group_instance_id,
            ),
            ConsumerGroupHeartbeatResponse,
        )
        self._coordinator.raise_for(answer.error_code, f"leaving group {self._coordinator.key!r}")
