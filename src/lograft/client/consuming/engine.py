"""Connects the parts of a consumer: background tasks and the calls of the application.

subscription ◀── membership (assignment) ◀── heartbeats, joins
    │ ▲
    │ └── positions (start offsets) ── fetcher (slices) ── collector ──▶ application
    └── committed offsets ──▶ group coordinator
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from lograft.client.cluster_view import cluster_notifier
from lograft.client.consuming.classic_group import ClassicGroup
from lograft.client.consuming.committed_offsets import CommitIdentity, CommittedOffsets
from lograft.client.consuming.consumer_group import ConsumerGroup
from lograft.client.consuming.fetch_collector import FetchCollector
from lograft.client.consuming.fetch_metrics import FetchMetrics, PollMetrics
from lograft.client.consuming.fetcher import Fetcher
from lograft.client.consuming.group_metrics import GroupMetrics
from lograft.client.consuming.interceptors import ConsumerInterceptors
from lograft.client.consuming.membership import (
    Membership,
    MembershipContext,
    PollTimer,
    TopicSelection,
)
from lograft.client.consuming.notifier import Notifier
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.consuming.positions import Positions
from lograft.client.consuming.rebalance_listener import AssignmentUpdater, RebalanceListener
from lograft.client.consuming.records import RecordDeserializer
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.subscription import Subscription
from lograft.client.consuming.subscription_modes import SubscriptionModes
from lograft.client.coordinators import Coordinator, CoordinatorType
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, Closed, WrongUse
from lograft.client.types import OffsetAndMetadata, TopicPartition
from lograft.model.errors import LograftError
from lograft.model.seams import Runtime

LOGGER: Final = logging.getLogger(__name__)

T = TypeVar("T")


class Engine:
    def __init__(self, settings: ConsumerSettings, runtime: Runtime | None) -> None:
        self.settings = settings
        core = self.core = ClientCore(
            settings, creates_topics=settings.allow_auto_create_topics, runtime=runtime
        )
        self.interceptors = ConsumerInterceptors(settings.interceptor_classes)
        self.subscription = Subscription()
        self.notifier = Notifier(core.runtime.clock)
        self.lookup = OffsetLookup(core)
        self.positions = Positions(
            core,
            self.subscription,
            self.lookup,
            fetch_committed=self._fetch_committed,
            check_access=self._check_access,
            on_change=self._on_position_change,
        )
        clock = core.runtime.clock
        fetch_metrics = FetchMetrics(
            self.subscription, is_read_committed=settings.is_read_committed
        )
        self.poll_metrics = PollMetrics(clock)
        self._group_metrics = GroupMetrics(
            clock,
            count_assigned=self.subscription.__len__,
            is_classic=not settings.uses_consumer_protocol,
        )
        for metrics in (fetch_metrics, self.poll_metrics, self._group_metrics):
            core.metrics.add_source(metrics.collect_readings)
        self.fetcher = Fetcher(
            core,
            self.subscription,
            fetch_metrics,
            on_fetched=self.notifier.notify_now,
            on_reset=self.positions.wake,
        )
        self.deserializer = RecordDeserializer(
            settings.key_deserializer, settings.value_deserializer
        )
        self.collector = FetchCollector(
            self.subscription,
            self.deserializer,
            checks_crcs=settings.check_crcs,
            metrics=fetch_metrics,
            on_slice_consumed=self.fetcher.on_slice_consumed,
            on_error_raised=self.wake,
        )
        self.assignment = AssignmentUpdater(
            self.subscription,
            self._group_metrics,
            commit=self._commit_before_revocation,
            on_change=self.wake,
        )
        self._committed_offsets: CommittedOffsets | None = None
        self._coordinator: Coordinator | None = None
        if settings.group_id is not None:
            self._set_group(settings.group_id)
        self.membership: Membership | None = None
        self.selection = TopicSelection()
        self._modes: SubscriptionModes | None = None
        self._poll_timer = PollTimer(settings.max_poll_interval_ms, core.now_ms)
        self._is_closing = False
        self._serving: asyncio.Future[None] | None = None
        self._serving_task: asyncio.Task[Any] | None = None
        self._serving_failure: LograftError | None = None
        self._next_auto_commit_ms = core.now_ms() + settings.auto_commit_interval_ms
        self._auto_commit: asyncio.Future[None] | None = None
        notify = cluster_notifier(
            (
                *settings.interceptor_classes,
                settings.key_deserializer,
                settings.value_deserializer,
            ),
            core.metadata.cache,
        )
        if notify is not None:
            core.metadata.on_update(notify)
        self.positions.start()
        self.fetcher.start()

    # ── subscription and assignment ──────────────────────────────────────────────────────────

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self.selection != TopicSelection():
            raise WrongUse("this consumer has subscribed to topics: await unsubscribe() first")
        before = set(self.subscription.partitions)
        self.subscription.assign(partitions)
        for state in self.subscription:
            if state.partition not in before:
                state.is_admitted = self._committed_offsets is None
        self.core.metadata.set_topics(self.subscription.topics)
        self.wake()

    def subscribe(
        self, selection: TopicSelection, listener: RebalanceListener | None, mode: str | None
    ) -> None:
        if self.selection == TopicSelection() and self.subscription:
            raise WrongUse("this consumer has partitions from assign(): call assign([]) first")
        if self._coordinator is None and mode != "ptp":
            raise WrongUse(
                "subscribe() requires a group: set group.id, or use assign() for partitions"
            )
        self.selection = selection
        self.assignment.listener = listener
        self._modes = None
        if mode is not None:
            self._modes = SubscriptionModes(self.core, mode, sorted(selection.topics))
        else:
            self._start_membership()
        self.notifier.notify()

    async def unsubscribe(self, reason: str, timeout_ms: int) -> None:
        if self._serving_task is asyncio.current_task():
            raise WrongUse("a rebalance listener cannot unsubscribe its own consumer")
        self.selection = TopicSelection()
        self._modes = None
        if self._serving is not None:
            await asyncio.shield(self._serving)
        if self.membership is not None:
            # Kept until it has left: its last commit needs the commit identity.
            try:
                await self.membership.leave(reason, timeout_ms)
            finally:
                self.membership = None
            self.assignment.raise_failure()
        self.subscription.assign(())

    def _start_membership(self) -> None:
        assert self._coordinator is not None
        if self.membership is None:
            if not self._poll_timer.is_polling:
                self._poll_timer.end_poll()  # max.poll.interval.ms starts with the membership.
            context = MembershipContext(
                self.core,
                self._coordinator,
                self.assignment,
                on_change=self.notifier.notify,
                poll_timer=self._poll_timer,
                metrics=self._group_metrics,
            )
            kind = ConsumerGroup if self.settings.uses_consumer_protocol else ClassicGroup
            self.membership = kind(context)
            self.membership.start()
        self.membership.subscribe(self.selection)

    def _set_group(self, group_id: str) -> None:
        self._coordinator = Coordinator(self.core, CoordinatorType.GROUP, group_id)
        self._committed_offsets = CommittedOffsets(
            self.core, self._coordinator, self.commit_identity, self._group_metrics
        )

    # ── polls ────────────────────────────────────────────────────────────────────────────────

    async def wait_for(self, collect: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        """Waits until `collect` returns a value. Returns it, or None after the timeout."""
        if self._poll_timer.is_polling:
            raise WrongUse(
                "another task is already waiting for records: a consumer supports one at a time"
            )
        deadline_ms = None if timeout_ms is None else self.core.now_ms() + timeout_ms
        self._poll_timer.start_poll()
        self.poll_metrics.on_poll_started()
        try:
            while True:
                self.core.check_open()
                if self._is_closing:
                    raise Closed("the consumer is closing")
                self.notifier.clear()
                await self._serve()
                collected = collect()
                if collected is not None:
                    return collected
                if not await self._wait(deadline_ms):
                    return None
        finally:
            self._poll_timer.end_poll()
            self.poll_metrics.on_poll_ended()

    async def _serve(self) -> None:
        """Runs at the start of every poll, when the application has processed the records of the
        last one."""
        if self._modes is not None:
            group_id = await self._modes.apply(self.group_id)
            if self._coordinator is None:
                self._set_group(group_id)
            self._modes = None
            self._start_membership()
        if self.membership is not None:
            await self._serve_membership(self.membership)
        elif not self.subscription:
            raise WrongUse("no partitions are assigned: call assign() or subscribe() first")
        if self._coordinator is not None:
            self._auto_commit_if_due()

    async def _serve_membership(self, membership: Membership) -> None:
        """Serves it in a separate task, so that a cancelled poll cannot interrupt a rebalance."""
        if self._serving is None and membership.needs_serving():
            done = self._serving = asyncio.get_running_loop().create_future()

            async def serve() -> None:
                self._serving_task = asyncio.current_task()
                try:
                    await membership.serve()
                except LograftError as error:
                    self._serving_failure = error
                finally:
                    self._serving = self._serving_task = None
                    if not done.done():
                        done.set_result(None)

            self.core.runtime.spawn(serve(), name="rebalance")
        if self._serving is not None:
            await asyncio.shield(self._serving)
        failure, self._serving_failure = self._serving_failure, None
        if failure is not None:
            raise failure

    async def _wait(self, deadline_ms: int | None) -> bool:
        """Waits for a notification, or until the next automatic commit. Returns False at the
        deadline."""
        until_ms = self._next_auto_commit_ms
        if not self.auto_commits or (deadline_ms is not None and deadline_ms <= until_ms):
            return await self.notifier.wait(deadline_ms)
        await self.notifier.wait(until_ms)
        return True

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    @property
    def group_id(self) -> str | None:
        return None if self._coordinator is None else self._coordinator.key

    @property
    def auto_commits(self) -> bool:
        return self._coordinator is not None and self.settings.enable_auto_commit is not False

    @property
    def committed_offsets(self) -> CommittedOffsets:
        if self._committed_offsets is None:
            raise WrongUse("committed offsets require a group: set group.id")
        return self._committed_offsets

    def commit_identity(self) -> CommitIdentity:
        return CommitIdentity() if self.membership is None else self.membership.commit_identity()

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions of the application."""
        return {
            partition: OffsetAndMetadata(position.offset, "", position.epoch)
            for partition, position in self.subscription.positions().items()
        }

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        *,
        gives_up_missing: bool = False,
    ) -> None:
        await self.committed_offsets.commit(offsets, timeout_ms, gives_up_missing=gives_up_missing)
        self.interceptors.on_commit(offsets)

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> "asyncio.Future[None]":
        assert self.committed_offsets is not None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def commit() -> None:
            try:
                # Commits are sent in order: a deleted topic must not block the next one.
                await self.commit(
                    offsets, self.settings.default_api_timeout_ms, gives_up_missing=True
                )
            except ClientError as error:
                LOGGER.warning("commit failed: %s", error)
                if not done.done():
                    done.set_exception(error)
                    done.exception()  # Marks it as retrieved: the error is already logged.
            else:
                if not done.done():
                    done.set_result(None)

        self.core.runtime.spawn(commit(), name="consumer commit")
        return done

    def _auto_commit_if_due(self) -> None:
        now_ms = self.core.now_ms()
        if now_ms < self._next_auto_commit_ms:
            return
        self._next_auto_commit_ms = now_ms + self.settings.auto_commit_interval_ms
        is_in_flight = self._auto_commit is not None and not self._auto_commit.done()
        if self.auto_commits and not self.commit_identity().is_out_of_group and not is_in_flight:
            self._auto_commit = self.commit_nowait(self.consumed_offsets())

    async def _commit_before_revocation(self, timeout_ms: int | None) -> None:
        """Logs a failure and continues, because the rest of the group waits for the rebalance."""
        if not self.auto_commits:
            return
        limit_ms = self.settings.request_timeout_ms
        if timeout_ms is not None:
            limit_ms = min(limit_ms, timeout_ms)
        try:
            await self.commit(self.consumed_offsets(), limit_ms, gives_up_missing=True)
        except ClientError as error:
            LOGGER.warning("the commit before a rebalance failed: %s", error)

    async def _fetch_committed(
        self, partitions: set[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self._committed_offsets is None:
            return {}
        return await self._committed_offsets.fetch_once(partitions)

    async def _check_access(self, partitions: set[TopicPartition]) -> None:
        if self._committed_offsets is not None:
            await self._committed_offsets.check_access(partitions)

    async def wait_for_access(self, partition: TopicPartition) -> None:
        """Raises ClientError if this consumer's group may not read the topic."""
        if self._committed_offsets is not None:
            await self._committed_offsets.wait_for_access(
                partition, self.settings.default_api_timeout_ms
            )

    # ── changes ──────────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        """Called when the assignment or a position has changed, or a failure may be retried."""
        self.positions.wake()
        self.fetcher.wake()

    def _on_position_change(self) -> None:
        self.fetcher.wake()
        self.notifier.notify()

    async def close(self, timeout_ms: int) -> None:
        if self._serving_task is asyncio.current_task():
            raise WrongUse("a rebalance listener cannot close its own consumer")
        self._is_closing = True
        try:
            if self.membership is not None:
                await self.unsubscribe("the consumer is being closed", timeout_ms)
            elif self.auto_commits:
                await self.commit(self.consumed_offsets(), timeout_ms, gives_up_missing=True)
        except ClientError as error:
            LOGGER.warning("error while closing the consumer: %s", error)
        finally:
            self.fetcher.close()
            await self.core.close()
            self.notifier.notify()
