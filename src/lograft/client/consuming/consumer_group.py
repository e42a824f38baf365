"""Membership in a KIP-848 group: the coordinator assigns, and heartbeats carry everything.

A heartbeat contains what has changed since the last acknowledged one, or everything after a
failure. A response may contain the target assignment of this member. The next poll revokes the
partitions that are not in it and assigns the new ones, and the next heartbeat reports the result.
"""

import asyncio
import logging
from typing import Final

from lograft.client.backoff import backoff_ms
from lograft.client.consuming.committed_offsets import CommitIdentity
from lograft.client.consuming.heartbeats import HeartbeatContent, member_id_of
from lograft.client.consuming.membership import (
    MembershipContext,
    TopicSelection,
    commit_timeout_ms,
)
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

#: Member epochs with a special meaning in requests.
_JOINING: Final = 0
_LEAVING: Final = -1
#: A static member leaves, and is expected to rejoin.
_LEAVING_TEMPORARILY: Final = -2
#: Local epoch of a consumer that is not in the group.
_OUT: Final = -1
_FIRST_INTERVAL_MS: Final = 3_000
#: The group has removed this member, and its partitions belong to others.
_FENCED: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))


class ConsumerGroup:
    def __init__(self, context: MembershipContext) -> None:
        self._context = context
        self._core = context.core
        self._settings = context.core.settings
        self._coordinator = context.coordinator
        self._assignment = context.assignment
        self._metrics = context.metrics
        self._selection = TopicSelection()
        self._member_id = member_id_of(self._core.runtime.randomness.uuid())
        #: Epoch in the last heartbeat response; _JOINING: the next heartbeat joins.
        self._epoch = _OUT
        self._interval_ms = _FIRST_INTERVAL_MS
        #: Content of the last acknowledged heartbeat; None: the next one contains everything.
        self._acknowledged: HeartbeatContent | None = None
        #: The target assignment that is not reconciled yet; None: the current one is the target.
        self._target: frozenset[TopicIdPartition] | None = None
        #: The current assignment with topic ids.
        self._owned: frozenset[TopicIdPartition] = frozenset()
        #: The partitions belong to other members; the listener has not been called yet.
        self._is_lost = False
        #: Whether the coordinator may have received a heartbeat since this member left the group.
        self._may_be_member = False
        self._error: ClientError | None = None
        self._wake = asyncio.Event()
        self._task: Task | None = None

    def commit_identity(self) -> CommitIdentity:
        if self._epoch <= 0:
            return CommitIdentity(is_out_of_group=True)
        return CommitIdentity(self._member_id, self._epoch, self._settings.group_instance_id)

    def start(self) -> None:
        self._remove_listener = self._core.metadata.on_update(self._context.on_change)

    def subscribe(self, selection: TopicSelection) -> None:
        self._selection = selection
        self._core.metadata.use_all_topics(False)
        self._core.metadata.set_topics(set(selection.topics) | self._owned_topics())
        if self._epoch == _OUT:
            self._epoch = _JOINING
        if self._task is None:
            self._task = self._core.runtime.spawn(self._run_heartbeats(), name="group heartbeats")
        self._wake.set()

    def rejoin(self, reason: str) -> None:
        raise WrongUse(
            "with group.protocol=consumer only the coordinator triggers rebalances; members can"
            " trigger one with group.protocol=classic"
        )

    # ── during a poll ────────────────────────────────────────────────────────────────────────

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
            await self._assignment.lose()
        if self._error is not None:
            raise self._error
        if self._epoch == _OUT and self._selection != TopicSelection():
            # The application had exceeded max.poll.interval.ms, and polls again.
            self._epoch = _JOINING
            self._acknowledged = None
            self._wake.set()
        if self._target is not None:
            await self._reconcile()
        self._assignment.raise_failure()

    async def _reconcile(self) -> None:
        """Replaces the assignment by the target, if the names of its topics are known."""
        target = self._target
        assert target is not None
        partitions = self._resolve_names(target)
        if partitions is None:
            return
        revoked = self._assignment.owned_partitions - partitions
        if revoked:
            await self._assignment.commit()
            await self._assignment.revoke(revoked)
        if target is not self._target:
            return  # A heartbeat response has replaced the target.
        self._target = None
        self._owned = target
        LOGGER.info(
            "group %r: assigned in epoch %d: %s",
            self._coordinator.key,
            self._epoch,
            ", ".join(map(str, sorted(partitions))) or "no partitions",
        )
        await self._assignment.assign(partitions)
        self._metrics.on_rebalance_ended()
        self._wake.set()

    def _resolve_names(self, partitions: frozenset[TopicIdPartition]) -> set[TopicPartition] | None:
        """Replaces topic ids by names. Returns None, and refreshes the metadata, if a topic is
        unknown."""
        cache = self._core.metadata.cache
        topics = {topic_id: cache.topic_by_id(topic_id) for topic_id, _index in partitions}
        unknown = [topic_id for topic_id, topic in topics.items() if topic is None]
        if unknown:
            # The coordinator may have matched them by the pattern: only the metadata of all topics
            # contains their names.
            if self._selection.pattern is not None:
                self._core.metadata.use_all_topics()
            self._core.metadata.request_update()
            return None
        return {
            TopicPartition(topic.name, index)
            for topic_id, index in partitions
            if (topic := topics[topic_id]) is not None
        }

    def _owned_topics(self) -> set[str]:
        return {partition.topic for partition in self._assignment.owned_partitions}

    async def leave(self, reason: str, timeout_ms: int) -> None:
        deadline_ms = self._core.now_ms() + timeout_ms
        self._remove_listener()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._selection = TopicSelection()
        if self._is_lost:
            await self._assignment.lose()
        else:
            await self._assignment.commit(commit_timeout_ms(timeout_ms))
            await self._assignment.revoke(self._assignment.owned_partitions)
        self._owned = frozenset()
        try:
            left_ms = max(0, deadline_ms - self._core.now_ms())
            async with asyncio.timeout(left_ms / 1000):
                await self._send_leave()
        except (ClientError, TimeoutError) as error:
            LOGGER.info(
                "could not send the last heartbeat to group %r, which removes this member when its"
                " session expires: %s",
                self._coordinator.key,
                error,
            )

    # ── heartbeats, in a task ────────────────────────────────────────────────────────────────

    async def _run_heartbeats(self) -> None:
        failures = 0
        while self._error is None:
            self._wake.clear()
            if self._epoch != _OUT:
                try:
                    if self._context.poll_timer.has_expired:
                        await self._leave_after_poll_timeout()
                    else:
                        await self._send_heartbeat()
                    failures = 0
                except ClientError as error:
                    failures += 1
                    # The coordinator may or may not have got it: the next one contains everything.
                    self._acknowledged = None
                    self._handle_failure(error)
            await self._wait(failures)

    async def _wait(self, failures: int) -> None:
        settings = self._settings
        wait_ms = self._context.poll_timer.next_check_ms(self._interval_ms)
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

    async def _send_heartbeat(self) -> None:
        epoch = self._epoch
        content = self._content()

        def build(_version: int) -> ConsumerGroupHeartbeatRequest:
            self._may_be_member = True
            return self._request(epoch, content)

        self._metrics.on_heartbeat()
        if epoch == _JOINING:
            self._metrics.on_rebalance_started()
        with self._metrics.measure(self._metrics.heartbeats_ms):
            response = await self._coordinator.request(
                build,
                ConsumerGroupHeartbeatResponse,
                at_least=1 if self._selection.pattern is not None else 0,
            )
        if response.error_code:
            self._handle_error(response)
            return
        self._acknowledged = content
        self._epoch = response.member_epoch
        self._member_id = response.member_id or self._member_id
        self._interval_ms = max(1, response.heartbeat_interval_ms)
        if response.assignment is not None:
            self._metrics.on_rebalance_started()
            self._target = frozenset(
                TopicIdPartition(topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )
            self._context.on_change()
        if epoch == _JOINING:
            self._context.on_change()

    def _content(self) -> HeartbeatContent:
        pattern = self._selection.pattern
        return HeartbeatContent(
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            # Without topics an empty list is sent: null would mean that nothing has changed.
            topics=tuple(sorted(self._selection.topics)),
            pattern=pattern or "",
            assignor=self._settings.group_remote_assignor,
            owned=self._owned,
        )

    def _request(self, epoch: int, content: HeartbeatContent) -> ConsumerGroupHeartbeatRequest:
        acknowledged = None if epoch == _JOINING else self._acknowledged
        rack = (self._settings.client_rack or None) if acknowledged is None else None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.key,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
            rack_id=rack,
            **content.fields_since(acknowledged),
        )

    def _handle_error(self, response: ConsumerGroupHeartbeatResponse) -> None:
        code = response.error_code
        self._coordinator.forget_if_moved(code)
        if code in _FENCED:
            LOGGER.warning("group %r has fenced this member; joining again", self._coordinator.key)
            self._lose_assignment(_JOINING)
            self._wake.set()
            return
        error = broker_error(
            code, f"heartbeat of group {self._coordinator.key!r}", response.error_message
        )
        if code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker has the API, but groups of this protocol are not enabled.
            raise UnsupportedByBroker(str(error)) from error
        raise error

    def _handle_failure(self, error: ClientError) -> None:
        LOGGER.debug("heartbeat of group %r failed: %s", self._coordinator.key, error)
        if error.is_retriable:
            return
        if isinstance(error, UnsupportedByBroker):
            error = UnsupportedByBroker(
                f"{error}; use group.protocol=classic, which all brokers support"
            )
        self._lose_assignment(_OUT)
        self._error = error
        self._context.on_change()

    def _lose_assignment(self, epoch: int) -> None:
        self._is_lost = True
        self._metrics.on_rebalance_failed()
        self._acknowledged = self._target = None
        # A member joins without partitions.
        self._owned = frozenset()
        self._epoch = epoch
        self._may_be_member = False
        self._context.on_change()

    async def _leave_after_poll_timeout(self) -> None:
        LOGGER.warning(
            "leaving group %r, because the application has not polled for longer than"
            " max.poll.interval.ms (%d). Increase max.poll.interval.ms or reduce max.poll.records",
            self._coordinator.key,
            self._context.poll_timer.limit_ms,
        )
        try:
            await self._send_leave()
        finally:
            self._lose_assignment(_OUT)

    async def _send_leave(self) -> None:
        """Also sent while the response to the first heartbeat is outstanding."""
        if not self._may_be_member:
            return
        self._may_be_member = False
        is_static = self._settings.group_instance_id is not None
        self._epoch = _OUT
        self._acknowledged = None
        response = await self._coordinator.request(
            ConsumerGroupHeartbeatRequest(
                group_id=self._coordinator.key,
                member_id=self._member_id,
                member_epoch=_LEAVING_TEMPORARILY if is_static else _LEAVING,
                instance_id=self._settings.group_instance_id,
            ),
            ConsumerGroupHeartbeatResponse,
        )
        self._coordinator.raise_for(response.error_code, f"leaving group {self._coordinator.key!r}")
