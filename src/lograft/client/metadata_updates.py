"""Updates the metadata of a client: when a new topic is used, when an error shows that it is stale,
and when metadata.max.age.ms has passed.

One request at a time is sent, to the least loaded broker, with a back-off after failures. Callers
that need a topic wait here until their own deadline. The first use of a topic needs a partial
update only: the request contains the new topics, not all topics that the client uses.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lograft.client.arguments import check_topic_name
from lograft.client.backoff import backoff_ms
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import (
    ClientError,
    TimedOut,
    broker_error,
)
from lograft.client.metadata import MetadataCache, Partition, Topic, is_transient
from lograft.client.metering.stopwatch import Stopwatch
from lograft.client.network import Broker, Network
from lograft.model.errors import ErrorCode
from lograft.model.seams import Runtime, Task
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

#: The idle time after which a client stops requesting a topic: never.
NEVER_IDLE_MS: Final = 1 << 62


class NoBrokers(ClientError):
    is_retriable = True


class Metadata:
    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        settings: ClientSettings,
        *,
        creates_topics: bool,
        max_idle_ms: int = NEVER_IDLE_MS,
    ) -> None:
        self._runtime = runtime
        self._network = network
        self._settings = settings
        self._creates_topics = creates_topics
        self._max_idle_ms = max_idle_ms
        self.cache = MetadataCache()
        #: Topics to request, and when each was last used.
        self._topics: dict[str, int] = {}
        self._uses_all_topics = False
        #: Topics in use that no response has contained yet.
        self._new_topics: set[str] = set()
        self._needs_update = asyncio.Event()
        #: The next update must cover all topics in use, not only the new ones.
        self._needs_full_update = True
        self._fully_updated_ms: int | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[], None]] = []
        self._failures = 0
        self._updated_ms: int | None = None
        #: When the last update succeeded; before the first, when the client was opened.
        self.succeeded_ms = runtime.clock.mono_ms()
        #: Time that callers wait for updates.
        self.waiting = Stopwatch(runtime.clock)
        #: Updates in a row that were requested although the one before had just succeeded.
        self._repeats = 0
        self._last_error: ClientError | None = None
        self._unreachable_since_ms: int | None = None
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._runtime.spawn(self._run(), name="client metadata")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def on_update(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` after every update. Returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ── topics in use ────────────────────────────────────────────────────────────────────────

    def use(self, topic: str) -> Topic | None:
        """Returns the topic if it is in the cache. From now on, updates include it."""
        if topic not in self._topics:
            check_topic_name(topic)
            self._new_topics.add(topic)
            self._request_new_topics()
        self._topics[topic] = self._runtime.clock.mono_ms()
        return self.cache.topic(topic)

    def use_all_topics(self, enabled: bool = True) -> None:
        """Updates include all topics of the cluster, for subscriptions by pattern."""
        if enabled and not self._uses_all_topics:
            self._needs_full_update = True
            self._request_new_topics()
        self._uses_all_topics = enabled

    def set_topics(self, topics: set[str]) -> None:
        """Replaces the topics in use."""
        now_ms = self._runtime.clock.mono_ms()
        added = topics - self._topics.keys()
        self._new_topics = (self._new_topics | added) & topics
        if added:
            self._request_new_topics()
        self.cache.forget(self._topics.keys() - topics)
        self._topics = dict.fromkeys(topics, now_ms)

    def _request_new_topics(self) -> None:
        self._repeats = 0
        self._needs_update.set()

    def request_update(self) -> None:
        """Requests a full update soon, because an error shows that the metadata is stale."""
        self._needs_full_update = True
        self._needs_update.set()

    def update_leader(
        self, topic: str, index: int, leader: int, epoch: int, brokers: list[Broker]
    ) -> None:
        """Applies the current leader from the response to a rejected request (KIP-951)."""
        for broker in brokers:
            self.cache.brokers[broker.id] = broker
            self._network.update_broker(broker)
        self.cache.update_leader(topic, index, leader, epoch)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    async def wait_topic(self, name: str, *, deadline_ms: int) -> Topic:
        """Returns the topic once it is in the metadata. Raises InvalidTopic and NotAuthorized
        immediately, TimedOut at the deadline (of the monotonic clock)."""
        while (topic := self.use(name)) is None:
            code = self.cache.error_of(name)
            if not is_transient(code):
                raise broker_error(code, f"topic {name!r}")
            if code:
                self.request_update()
            await self.wait_update(deadline_ms, f"topic {name!r} is not in the cluster")
        return topic

    async def wait_partition(self, name: str, index: int, *, deadline_ms: int) -> Partition:
        """Returns the partition once it is in the metadata. Raises like `wait_topic`."""
        topic = await self.wait_topic(name, deadline_ms=deadline_ms)
        while (partition := topic.partition(index)) is None:
            self.request_update()
            await self.wait_update(
                deadline_ms,
                f"topic {name!r} has {len(topic.partitions)} partitions, so there is no"
                f" partition {index}",
            )
            topic = await self.wait_topic(name, deadline_ms=deadline_ms)
        return partition

    async def wait_update(self, deadline_ms: int, problem: str) -> None:
        """Waits for the next update. Raises TimedOut with the problem at the deadline."""
        rest_ms = deadline_ms - self._runtime.clock.mono_ms()
        if rest_ms > 0:
            updated = asyncio.get_running_loop().create_future()
            self._waiters.append(updated)
            try:
                with self.waiting.measure():
                    async with asyncio.timeout(rest_ms / 1000):
                        await updated
                return
            except TimeoutError:
                pass
        cause = "" if self._last_error is None else f"; last error: {self._last_error}"
        raise TimedOut(problem + cause)

    async def refresh(self) -> None:
        """Updates now and raises failures: for the admin client."""
        self._needs_full_update = True
        await self._update()

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._time_to_full_update_ms() / 1000):
                    await self._needs_update.wait()
            except TimeoutError:
                self._needs_full_update = True
            await self._limit_rate()
            self._needs_update.clear()
            try:
                await self._update()
            except ClientError as error:
                self._on_failure(error)
                await asyncio.sleep(self._backoff_ms() / 1000)
            self._updated_ms = self._runtime.clock.mono_ms()

    def _time_to_full_update_ms(self) -> int:
        """Returns the time until metadata.max.age.ms requires a full update; partial updates do not
        postpone it."""
        age_max_ms = self._settings.metadata_max_age_ms
        if self._fully_updated_ms is None:
            return age_max_ms
        return max(0, self._fully_updated_ms + age_max_ms - self._runtime.clock.mono_ms())

    async def _limit_rate(self) -> None:
        """Waits if updates are requested right after each other, as while a partition has no leader
        or does not exist. The pauses grow from one millisecond, because most such states end soon,
        to retry.backoff.ms."""
        if self._failures or self._updated_ms is None:
            return
        pause_max_ms = self._settings.retry_backoff_ms
        since_ms = self._runtime.clock.mono_ms() - self._updated_ms
        if since_ms >= pause_max_ms:
            self._repeats = 0
            return
        pause_ms = min(1 << self._repeats, pause_max_ms)
        if pause_ms < pause_max_ms:
            self._repeats += 1
        if pause_ms > since_ms:
            await asyncio.sleep((pause_ms - since_ms) / 1000)

    async def _update(self) -> None:
        self._drop_idle_topics()
        new_topics, self._new_topics = self._new_topics, set()
        is_full = self._needs_full_update or not new_topics or not self._time_to_full_update_ms()
        self._needs_full_update = False
        try:
            await self._request(
                None if self._uses_all_topics else self._topics if is_full else new_topics
            )
        except ClientError:
            self._new_topics |= new_topics & self._topics.keys()
            self._needs_full_update |= is_full
            raise
        self.succeeded_ms = self._runtime.clock.mono_ms()
        if is_full:
            self._fully_updated_ms = self.succeeded_ms
        self._notify()

    async def _request(self, topics: Iterable[str] | None) -> None:
        """`topics`: None for all topics of the cluster."""
        names = None if topics is None else sorted(topics)
        response = await self._network.request(
            lambda version: _metadata_request(names, version, creates=self._creates_topics),
            MetadataResponse,
        )
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._network.rebootstrap()
        if response.error_code:
            raise broker_error(response.error_code, "updating metadata")
        if not self.cache.update(response, covers_all=names is None):
            raise NoBrokers("the metadata contains no brokers: the cluster may be starting")
        self._network.update_brokers(list(self.cache.brokers.values()))
        self._failures = 0
        self._last_error = None
        self._unreachable_since_ms = None

    def _on_failure(self, error: ClientError) -> None:
        """The update is retried after a back-off, and callers whose deadline expires get the error.
        An error that is not retriable is raised in all callers immediately."""
        self._failures += 1
        self._last_error = error
        self._needs_update.set()
        self._rebootstrap_if_needed()
        if not error.is_retriable:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)

    def _rebootstrap_if_needed(self) -> None:
        """Uses the bootstrap addresses again if no known broker can be reached: all brokers may
        have new addresses."""
        settings = self._settings
        now_ms = self._runtime.clock.mono_ms()
        if self._unreachable_since_ms is None:
            self._unreachable_since_ms = now_ms
        if settings.metadata_recovery_strategy.lower() != "rebootstrap":
            return
        unreachable_ms = now_ms - self._unreachable_since_ms
        all_failed = self._failures >= max(1, len(self._network.brokers))
        if all_failed or unreachable_ms >= settings.metadata_recovery_rebootstrap_trigger_ms:
            self._network.rebootstrap()

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for listener in list(self._listeners):
            listener()

    def _drop_idle_topics(self) -> None:
        before_ms = self._runtime.clock.mono_ms() - self._max_idle_ms
        idle = [name for name, used_ms in self._topics.items() if used_ms < before_ms]
        for name in idle:
            del self._topics[name]
            self._new_topics.discard(name)
        self.cache.forget(idle)

    def _backoff_ms(self) -> int:
        settings = self._settings
        return backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            max(1, self._failures),
            self._runtime.randomness,
        )


def _metadata_request(names: list[str] | None, version: int, *, creates: bool) -> MetadataRequest:
    """`names`: None for all topics, which version 0 expresses as an empty list."""
    topics: list[MetadataRequestTopic] | None
    if names is None:
        topics = None if version > 0 else []
    else:
        topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
