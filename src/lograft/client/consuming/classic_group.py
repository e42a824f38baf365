"""Membership in a classic group: joins while the application polls, gets its partitions from the
member that leads the group, and sends heartbeats.

    OUT ──serve: commit, revoke──▶ JOINING ──responses──▶ JOINED ──serve: assign──▶ IN
     ▲                                                                              │
     └── rebalance of the group, loss of the membership, change of the subscription ◀┘
"""

import asyncio
import logging
from typing import Final

from lograft.client.backoff import backoff_ms
from lograft.client.consuming.assignors import is_cooperative
from lograft.client.consuming.committed_offsets import CommitIdentity
from lograft.client.consuming.group_join import GroupJoin, JoinResult, RejoinRequired
from lograft.client.consuming.membership import (
    MembershipContext,
    TopicSelection,
    commit_timeout_ms,
)
from lograft.client.coordinators import Coordinator
from lograft.client.errors import ClientError, FencedInstance, RebalanceInProgress, broker_error
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.seams import Task
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

LOGGER: Final = logging.getLogger(__name__)

_NO_GENERATION: Final = -1
#: How long a member that leaves waits for its member id.
_MEMBER_ID_MS: Final = 3_000
_MANY_MEMBERS_SINCE: Final = 3
#: The group has removed this member, and its partitions belong to others.
_NOT_A_MEMBER: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))


class ClassicGroup:
    def __init__(self, context: MembershipContext) -> None:
        self._context = context
        self._core = context.core
        self._settings = context.core.settings
        self._coordinator: Coordinator = context.coordinator
        self._assignment = context.assignment
        self._metrics = context.metrics
        self._group_join = GroupJoin(context.core, context.coordinator, context.metrics)
        self._selection = TopicSelection()
        self._assignors = self._settings.assignors()
        self._is_cooperative = is_cooperative(self._assignors)
        self._member_id = ""
        self._generation = _NO_GENERATION
        #: The last assignment and its generation, for sticky assignors.
        self._last_owned: tuple[frozenset[TopicPartition], int] = frozenset(), _NO_GENERATION
        #: Why this member has to join; None: it does not.
        self._join_reason: str | None = None
        self._join_task: Task | None = None
        #: Completed by the end of the attempt to join that is in progress while this member leaves.
        self._join_ended: asyncio.Future[None] | None = None
        #: The result of a join that `serve` has not applied yet.
        self._join_result: JoinResult | None = None
        #: The partitions belong to other members; the listener has not been called yet.
        self._is_lost = False
        self._error: ClientError | None = None
        self._heartbeat_task: Task | None = None
        self._refresh_timer: asyncio.TimerHandle | None = None

    def commit_identity(self) -> CommitIdentity:
        if self._generation == _NO_GENERATION:
            return CommitIdentity(is_out_of_group=True)
        return CommitIdentity(self._member_id, self._generation, self._settings.group_instance_id)

    def start(self) -> None:
        self._remove_listener = self._core.metadata.on_update(self._on_metadata)
        self._heartbeat_task = self._core.runtime.spawn(
            self._run_heartbeats(), name="group heartbeats"
        )

    def subscribe(self, selection: TopicSelection) -> None:
        metadata = self._core.metadata
        metadata.use_all_topics(selection.pattern is not None)
        self._selection = selection
        topics = self._subscribed_topics()
        metadata.set_topics(set(topics))
        self._group_join.topics = topics
        self._request_join("the subscription has changed")

    def rejoin(self, reason: str) -> None:
        if self._join_reason is None and self._join_task is None:
            self._request_join(reason)

    # ── during a poll ────────────────────────────────────────────────────────────────────────

    def needs_serving(self) -> bool:
        return (
            self._error is not None
            or self._is_lost
            or self._join_result is not None
            or (self._join_reason is not None and self._join_task is None and self._can_join())
        )

    async def serve(self) -> None:
        if self._is_lost:
            self._is_lost = False
            await self._assignment.lose()
        if self._error is not None:
            error = self._error
            if not isinstance(error, FencedInstance):
                # The next call retries. Not after FencedInstance: two consumers with the same
                # instance id would fence each other again and again.
                self._error = None
            raise error
        if self._join_result is not None:
            await self._apply_assignment(self._join_result)
        if self._join_reason is not None and self._join_task is None and self._can_join():
            await self._prepare_join()
            self._start_join()
        self._assignment.raise_failure()

    def _can_join(self) -> bool:
        """A pattern can be matched only after the first metadata response."""
        return self._selection.pattern is None or bool(self._core.metadata.cache.brokers)

    async def _prepare_join(self) -> None:
        """Commits and revokes partitions: all of them with eager assignors, those of unsubscribed
        topics with cooperative ones."""
        self._metrics.on_rebalance_started()
        await self._assignment.commit()
        owned = self._assignment.owned_partitions
        if self._is_cooperative:
            topics = self._group_join.topics
            await self._assignment.revoke(
                {partition for partition in owned if partition.topic not in topics}
            )
        else:
            await self._assignment.revoke(owned)

    def _start_join(self) -> None:
        assert self._join_reason is not None
        reason, self._join_reason = self._join_reason, None
        if self._is_cooperative:
            self._group_join.owned = frozenset(self._assignment.owned_partitions), self._generation
        else:
            self._group_join.owned = self._last_owned
        self._join_task = self._core.runtime.spawn(self._join(reason), name="join group")

    async def _apply_assignment(self, result: JoinResult) -> None:
        self._join_result = None
        owned, assigned = self._assignment.owned_partitions, result.partitions
        LOGGER.info(
            "group %r: assigned in generation %d: %s",
            self._coordinator.key,
            result.generation,
            ", ".join(map(str, sorted(assigned))) or "no partitions",
        )
        revoked = owned - assigned
        if revoked:
            assert self._is_cooperative, revoked
            await self._assignment.revoke(revoked)
            self._request_join("revoked partitions can be assigned to other members")
        self._last_owned = frozenset(assigned), result.generation
        await self._assignment.assign(assigned)
        self._metrics.on_rebalance_ended()

    async def leave(self, reason: str, timeout_ms: int) -> None:
        deadline_ms = self._core.now_ms() + timeout_ms
        self._remove_listener()
        await self._wait_for_member_id(min(timeout_ms, _MEMBER_ID_MS))
        if self._join_task is not None:
            self._join_task.cancel()
            self._join_task = None
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
        self._selection = TopicSelection()
        self._watch_for_missing_topics(frozenset())
        self._join_reason = self._join_result = None
        if self._is_lost:
            await self._assignment.lose()
        else:
            await self._assignment.commit(commit_timeout_ms(timeout_ms))
            await self._assignment.revoke(self._assignment.owned_partitions)
        try:
            left_ms = max(0, deadline_ms - self._core.now_ms())
            async with asyncio.timeout(left_ms / 1000):
                await self._send_leave(self._member_id, reason)
        except (ClientError, TimeoutError) as error:
            LOGGER.info(
                "could not send LeaveGroup to group %r, which removes this member when its session"
                " expires: %s",
                self._coordinator.key,
                error,
            )

    async def _wait_for_member_id(self, timeout_ms: int) -> None:
        """The coordinator has assigned a member id, or will, if it has received the first JoinGroup
        request. The other members would have to wait for this one until its session expires."""
        is_static = self._settings.group_instance_id is not None
        if self._join_task is None or self._member_id or is_static or not self._group_join.is_sent:
            return
        self._join_ended = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._join_ended
        except TimeoutError:
            pass

    # ── joining, in a task ───────────────────────────────────────────────────────────────────

    async def _join(self, reason: str) -> None:
        """Retries until the member has joined or gets an error that is not retriable. The next poll
        applies the result."""
        failures = 0
        try:
            while True:
                try:
                    self._group_join.member = self._member_id, self._generation
                    self._join_result = await self._group_join.join(self._assignors, reason)
                    self._member_id = self._join_result.member_id
                    self._generation = self._join_result.generation
                    return
                except RejoinRequired as error:
                    self._reset_membership(error.member_id)
                    if self._join_ended is not None:
                        return
                except RebalanceInProgress as error:
                    LOGGER.debug("group %r rebalances again: %s", self._coordinator.key, error)
                    self._metrics.on_rebalance_failed()
                except ClientError as error:
                    self._metrics.on_rebalance_failed()
                    if not error.is_retriable or self._join_ended is not None:
                        self._error = error
                        self._join_reason = reason
                        return
                    failures += 1
                    LOGGER.debug("joining group %r failed: %s", self._coordinator.key, error)
                    await self._back_off(failures)
        finally:
            self._join_task = None
            if self._join_ended is not None and not self._join_ended.done():
                self._join_ended.set_result(None)
            self._context.on_change()

    def _request_join(self, reason: str) -> None:
        self._join_reason = reason
        self._context.on_change()

    def _reset_membership(self, member_id: str = "") -> None:
        """Called when the group does not, or no longer, contain this member. Its partitions are
        lost."""
        if self._generation != _NO_GENERATION:
            self._is_lost = True
            self._metrics.on_rebalance_failed()
        self._member_id = member_id
        self._generation = _NO_GENERATION
        self._last_owned = self._group_join.owned = frozenset(), _NO_GENERATION

    # ── heartbeats, in a task ────────────────────────────────────────────────────────────────

    async def _run_heartbeats(self) -> None:
        while True:
            pause_ms = self._context.poll_timer.next_check_ms(self._settings.heartbeat_ms)
            await asyncio.sleep(pause_ms / 1000)
            if self._generation == _NO_GENERATION or self._join_task is not None:
                continue
            try:
                if self._context.poll_timer.has_expired:
                    await self._leave_after_poll_timeout()
                else:
                    await self._send_heartbeat()
            except ClientError as error:
                LOGGER.debug("heartbeat of group %r failed: %s", self._coordinator.key, error)
                if not error.is_retriable:
                    self._reset_membership()
                    self._error = error
                    self._request_join("a heartbeat was rejected")

    async def _send_heartbeat(self) -> None:
        generation = self._generation
        self._metrics.on_heartbeat()
        request = HeartbeatRequest(
            group_id=self._coordinator.key,
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        with self._metrics.measure(self._metrics.heartbeats_ms):
            response = await self._coordinator.request(request, HeartbeatResponse)
        if generation != self._generation or not response.error_code:
            return
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self._join_reason is None and self._join_task is None:
                self._request_join("the group is rebalancing")
        elif response.error_code in _NOT_A_MEMBER:
            LOGGER.warning("group %r has removed this member; joining again", self._coordinator.key)
            self._reset_membership()
            self._request_join("the group has removed this member")
        else:
            self._coordinator.forget_if_moved(response.error_code)
            raise broker_error(response.error_code, f"heartbeat of group {self._coordinator.key!r}")

    async def _leave_after_poll_timeout(self) -> None:
        LOGGER.warning(
            "leaving group %r, because the application has not polled for longer than"
            " max.poll.interval.ms (%d). Increase max.poll.interval.ms or reduce max.poll.records",
            self._coordinator.key,
            self._context.poll_timer.limit_ms,
        )
        member_id = self._member_id
        self._reset_membership()
        self._request_join("the application exceeded max.poll.interval.ms")
        await self._send_leave(member_id, "consumer poll timeout has expired")

    async def _send_leave(self, member_id: str, reason: str) -> None:
        """Not sent by static members, which keep their assignment until their session expires."""
        if not member_id or self._settings.group_instance_id is not None:
            return

        def request(version: int) -> LeaveGroupRequest:
            if version < _MANY_MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=self._coordinator.key, member_id=member_id)
            identity = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=self._coordinator.key, members=[identity])

        response = await self._coordinator.request(request, LeaveGroupResponse)
        self._coordinator.raise_for(response.error_code, f"leaving group {self._coordinator.key!r}")

    async def _back_off(self, failures: int) -> None:
        settings = self._settings
        randomness = self._core.runtime.randomness
        wait_ms = backoff_ms(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, failures, randomness
        )
        await asyncio.sleep(wait_ms / 1000)

    # ── subscribed topics ────────────────────────────────────────────────────────────────────

    def _subscribed_topics(self) -> frozenset[str]:
        if self._selection.pattern is None:
            return self._selection.topics
        excludes_internal = self._settings.exclude_internal_topics
        names = frozenset(
            name
            for name, topic in self._core.metadata.cache.topics.items()
            if not (excludes_internal and topic.is_internal)
        )
        return self._selection.match(names)

    def _on_metadata(self) -> None:
        topics = self._subscribed_topics()
        if topics != self._group_join.topics:
            self._group_join.topics = topics
            self._request_join("the topics that match the pattern have changed")
        elif self._generation != _NO_GENERATION and self._group_join.is_outdated():
            self._request_join("the topics of the group have changed")
        self._watch_for_missing_topics(topics)

    def _watch_for_missing_topics(self, topics: frozenset[str]) -> None:
        """Refreshes the metadata periodically while a subscribed topic does not exist."""
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
            self._refresh_timer = None
        metadata = self._core.metadata
        if any(metadata.cache.topic(topic) is None for topic in topics):
            self._refresh_timer = asyncio.get_running_loop().call_later(
                self._settings.retry_backoff_max_ms / 1000, metadata.request_update
            )
