"""A consumer's parts, put together: what runs beside the program, and what its calls do.

subscription ◀── membership (which partitions) ◀── heartbeats, joins
    │ ▲
    │ └── positions (where to begin) ── fetcher (slices) ── collector ──▶ the program
    └── commits ──▶ the group's coordinator
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from lograft.client.cluster_view import cluster_notifier
from lograft.client.consuming.classic_group import ClassicGroup
from lograft.client.consuming.committed_offsets import CommittedOffsets, Identity
from lograft.client.consuming.consumer_group import ConsumerGroup
from lograft.client.consuming.fetch_collector import FetchCollector
from lograft.client.consuming.fetcher import Fetcher
from lograft.client.consuming.interceptors import ConsumerInterceptors
from lograft.client.consuming.membership import Interest, Membership, MembershipContext, Patience
from lograft.client.consuming.notifier import Notifier
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.consuming.positions import Positions
from lograft.client.consuming.rebalance_listener import Handover, RebalanceListener
from lograft.client.consuming.records import Decoders
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
            committed=self._committed,
            check_access=self._check_access,
            on_news=self._on_position,
        )
        self.fetcher = Fetcher(
            core, self.subscription, on_news=self.notifier.notify_now, on_reset=self.positions.wake
        )
        self.decoders = Decoders(settings.key_deserializer, settings.value_deserializer)
        self.collector = FetchCollector(
            self.subscription,
            self.decoders,
            checks_crcs=settings.check_crcs,
            on_room=self.fetcher.on_room,
            on_retry=self.changed,
        )
        self.handover = Handover(
            self.subscription, commit=self._commit_before_letting_go, on_change=self.changed
        )
        self._commits: CommittedOffsets | None = None
        self._coordinator: Coordinator | None = None
        if settings.group_id is not None:
            self._join_group(settings.group_id)
        self.membership: Membership | None = None
        self.interest = Interest()
        self._modes: SubscriptionModes | None = None
        self._patience = Patience(settings.max_poll_interval_ms, core.now_ms)
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

    # ── which partitions ─────────────────────────────────────────────────────────────────────

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self.interest != Interest():
            raise WrongUse("this consumer has subscribed to topics: await unsubscribe() first")
        before = set(self.subscription.partitions)
        self.subscription.assign(partitions)
        for state in self.subscription:
            if state.partition not in before:
                state.is_admitted = self._commits is None
        self.core.metadata.set_topics(self.subscription.topics)
        self.changed()

    def subscribe(
        self, interest: Interest, listener: RebalanceListener | None, mode: str | None
    ) -> None:
        if self.interest == Interest() and self.subscription:
            raise WrongUse("this consumer has assigned itself partitions: assign([]) first")
        if self._coordinator is None and mode != "ptp":
            raise WrongUse("a subscription is a group's: set group.id, or assign() partitions")
        self.interest = interest
        self.handover.listener = listener
        self._modes = None
        if mode is not None:
            self._modes = SubscriptionModes(self.core, mode, sorted(interest.topics))
        else:
            self._begin_membership()
        self.notifier.notify()

    async def unsubscribe(self, reason: str, timeout_ms: int) -> None:
        if self._serving_task is asyncio.current_task():
            raise WrongUse("a listener cannot leave the group that it is told about")
        self.interest = Interest()
        self._modes = None
        if self._serving is not None:
            await asyncio.shield(self._serving)
        if self.membership is not None:
            # It is asked who commits until the last.
            try:
                await self.membership.leave(reason, timeout_ms)
            finally:
                self.membership = None
            self.handover.raise_failure()
        self.subscription.assign(())

    def _begin_membership(self) -> None:
        assert self._coordinator is not None
        if self.membership is None:
            if not self._patience.is_called:
                self._patience.call_ends()  # Before this there was no call to wait for.
            around = MembershipContext(
                self.core,
                self._coordinator,
                self.handover,
                on_news=self.notifier.notify,
                patience=self._patience,
            )
            kind = ConsumerGroup if self.settings.uses_consumer_protocol else ClassicGroup
            self.membership = kind(around)
            self.membership.start()
        self.membership.subscribe(self.interest)

    def _join_group(self, group_id: str) -> None:
        self._coordinator = Coordinator(self.core, CoordinatorType.GROUP, group_id)
        self._commits = CommittedOffsets(self.core, self._coordinator, self.identity)

    # ── the program's calls ──────────────────────────────────────────────────────────────────

    async def wait_for(self, take: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        """What `take` gives as soon as it gives something; None when the time is up."""
        if self._patience.is_called:
            raise WrongUse("another task waits in this consumer already: one at a time may")
        deadline_ms = None if timeout_ms is None else self.core.now_ms() + timeout_ms
        self._patience.call_begins()
        try:
            while True:
                self.core.check_open()
                if self._is_closing:
                    raise Closed("the consumer is closing")
                self.notifier.clear()
                await self._serve()
                taken = take()
                if taken is not None:
                    return taken
                if not await self._wait(deadline_ms):
                    return None
        finally:
            self._patience.call_ends()

    async def _serve(self) -> None:
        """What is to be done whenever the program calls for records: it has got all that it was
        given before, and does nothing with it now."""
        if self._modes is not None:
            group_id = await self._modes.settle(self.group_id)
            if self._coordinator is None:
                self._join_group(group_id)
            self._modes = None
            self._begin_membership()
        if self.membership is not None:
            await self._serve_membership(self.membership)
        elif not self.subscription:
            raise WrongUse("nothing is assigned: call assign() or subscribe() first")
        if self._coordinator is not None:
            self._commit_from_time_to_time()

    async def _serve_membership(self, membership: Membership) -> None:
        """In a task of its own: a call that is given up must not leave a rebalance half done."""
        if self._serving is None and membership.needs_serving():
            done = self._serving = asyncio.get_running_loop().create_future()

            async def work() -> None:
                self._serving_task = asyncio.current_task()
                try:
                    await membership.serve()
                except LograftError as error:
                    self._serving_failure = error
                finally:
                    self._serving = self._serving_task = None
                    if not done.done():
                        done.set_result(None)

            self.core.runtime.spawn(work(), name="rebalance")
        if self._serving is not None:
            await asyncio.shield(self._serving)
        failure, self._serving_failure = self._serving_failure, None
        if failure is not None:
            raise failure

    async def _wait(self, deadline_ms: int | None) -> bool:
        """Until something has happened; False at the deadline."""
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
    def commits(self) -> CommittedOffsets:
        if self._commits is None:
            raise WrongUse("without group.id there is nobody to commit for")
        return self._commits

    def identity(self) -> Identity:
        return Identity() if self.membership is None else self.membership.identity()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the program has got."""
        return {
            one: OffsetAndMetadata(place.offset, "", place.epoch)
            for one, place in self.subscription.positions().items()
        }

    async def commit(
        self,
        places: Mapping[TopicPartition, OffsetAndMetadata],
        budget_ms: int,
        *,
        gives_up_missing: bool = False,
    ) -> None:
        await self.commits.commit(places, budget_ms, gives_up_missing=gives_up_missing)
        self.interceptors.on_commit(places)

    def commit_nowait(
        self, places: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> "asyncio.Future[None]":
        assert self.commits is not None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                # Commits are made in turn: a deleted topic must not keep the next one waiting.
                await self.commit(
                    places, self.settings.default_api_timeout_ms, gives_up_missing=True
                )
            except ClientError as error:
                LOGGER.warning("offsets are not committed: %s", error)
                if not done.done():
                    done.set_exception(error)
                    done.exception()  # It has been told.
            else:
                if not done.done():
                    done.set_result(None)

        self.core.runtime.spawn(work(), name="consumer commit")
        return done

    def _commit_from_time_to_time(self) -> None:
        now_ms = self.core.now_ms()
        if now_ms < self._next_auto_commit_ms:
            return
        self._next_auto_commit_ms = now_ms + self.settings.auto_commit_interval_ms
        is_under_way = self._auto_commit is not None and not self._auto_commit.done()
        if self.auto_commits and not self.identity().is_out and not is_under_way:
            self._auto_commit = self.commit_nowait(self.consumed())

    async def _commit_before_letting_go(self, budget_ms: int | None) -> None:
        """A failure is told and does not stop the rebalance: others wait for it."""
        if not self.auto_commits:
            return
        limit_ms = self.settings.request_timeout_ms
        if budget_ms is not None:
            limit_ms = min(limit_ms, budget_ms)
        try:
            await self.commit(self.consumed(), limit_ms, gives_up_missing=True)
        except ClientError as error:
            LOGGER.warning("positions are not committed before the rebalance: %s", error)

    async def _committed(
        self, partitions: set[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {} if self._commits is None else await self._commits.committed_once(partitions)

    async def _check_access(self, partitions: set[TopicPartition]) -> None:
        if self._commits is not None:
            await self._commits.check_access(partitions)

    async def await_access(self, partition: TopicPartition) -> None:
        """Raises ClientError if this consumer's group may not read the topic."""
        if self._commits is not None:
            await self._commits.await_access(partition, self.settings.default_api_timeout_ms)

    # ── news ─────────────────────────────────────────────────────────────────────────────────

    def changed(self) -> None:
        """The assignment or a position has changed, or is to be looked for again."""
        self.positions.wake()
        self.fetcher.wake()

    def _on_position(self) -> None:
        self.fetcher.wake()
        self.notifier.notify()

    async def close(self, timeout_ms: int) -> None:
        if self._serving_task is asyncio.current_task():
            raise WrongUse("a listener cannot close its consumer")
        self._is_closing = True
        try:
            if self.membership is not None:
                await self.unsubscribe("the consumer is being closed", timeout_ms)
            elif self.auto_commits:
                await self.commit(self.consumed(), timeout_ms, gives_up_missing=True)
        except ClientError as error:
            LOGGER.warning("closing was not as clean as it should be: %s", error)
        finally:
            self.fetcher.close()
            await self.core.close()
            self.notifier.notify()
