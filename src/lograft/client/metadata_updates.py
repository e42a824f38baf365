"""Keeps the metadata of a client current: asks when somebody needs to know, when something showed
that it is old, and when it has come of age.

One question at a time, to the broker that has the least to do; after a failure a back-off. Whoever
needs a topic waits here for as long as its own budget lasts. A topic that is used for the first
time needs a partial update only: the request names the new topics, not all that the client uses.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lograft.client.arguments import topic_name
from lograft.client.backoff import backoff_ms
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import (
    ClientError,
    TimedOut,
    broker_error,
)
from lograft.client.metadata import MetadataCache, Partition, Topic, is_passing
from lograft.client.network import Broker, Network
from lograft.model.errors import ErrorCode
from lograft.model.seams import Runtime, Task
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

#: Topics that a client has not used for so long are no longer asked for.
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
        #: Topics to ask for, and when each was last used.
        self._wanted: dict[str, int] = {}
        self._wants_all = False
        #: Those of them that no response has described yet.
        self._new_topics: set[str] = set()
        self._needs_update = asyncio.Event()
        #: The update has to cover all topics, not only the new ones.
        self._needs_full_update = True
        self._fully_updated_ms: int | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[], None]] = []
        self._failures = 0
        self._updated_ms: int | None = None
        #: Updates in a row that somebody asked for because the one before was not enough.
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
        """Called after every update, inside the loop; what is returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # ── what is wanted ───────────────────────────────────────────────────────────────────────

    def use(self, topic: str) -> Topic | None:
        """The topic, if it is known; from now on it is kept current."""
        if topic not in self._wanted:
            topic_name(topic)
            self._new_topics.add(topic)
            self._has_new_topics()
        self._wanted[topic] = self._runtime.clock.mono_ms()
        return self.cache.topic(topic)

    def want_all(self, wants: bool = True) -> None:
        """All topics there are: for subscriptions by pattern."""
        if wants and not self._wants_all:
            self._needs_full_update = True
            self._has_new_topics()
        self._wants_all = wants

    def set_wanted(self, topics: set[str]) -> None:
        """Exactly these."""
        now_ms = self._runtime.clock.mono_ms()
        added = topics - self._wanted.keys()
        self._new_topics = (self._new_topics | added) & topics
        if added:
            self._has_new_topics()
        self.cache.forget(self._wanted.keys() - topics)
        self._wanted = dict.fromkeys(topics, now_ms)

    def _has_new_topics(self) -> None:
        self._repeats = 0
        self._needs_update.set()

    def is_old(self) -> None:
        """Something shows that what we know is not right any more."""
        self._needs_full_update = True
        self._needs_update.set()

    def learn_leader(
        self, topic: str, index: int, leader: int, epoch: int, brokers: list[Broker]
    ) -> None:
        """From an answer that refused us and named who leads now (KIP-951)."""
        for broker in brokers:
            self.cache.brokers[broker.id] = broker
            self._network.learn_broker(broker)
        self.cache.learn_leader(topic, index, leader, epoch)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    async def topic(self, name: str, *, deadline_ms: int) -> Topic:
        """Waits until the topic is known. Raises InvalidTopic and NotAuthorized at once, TimedOut
        at the deadline (of the monotonic clock)."""
        while (topic := self.use(name)) is None:
            code = self.cache.error_of(name)
            if not is_passing(code):
                raise broker_error(code, f"topic {name!r}")
            if code:
                self.is_old()
            await self.next_update(deadline_ms, f"topic {name!r} is not in the cluster")
        return topic

    async def partition(self, name: str, index: int, *, deadline_ms: int) -> Partition:
        """Waits until the topic has that partition."""
        topic = await self.topic(name, deadline_ms=deadline_ms)
        while (partition := topic.partition(index)) is None:
            self.is_old()
            await self.next_update(
                deadline_ms,
                f"topic {name!r} has {len(topic.partitions)} partitions, so there is no"
                f" partition {index}",
            )
            topic = await self.topic(name, deadline_ms=deadline_ms)
        return partition

    async def next_update(self, deadline_ms: int, problem: str) -> None:
        """Waits for the next update; TimedOut with the problem when the deadline comes first."""
        rest_ms = deadline_ms - self._runtime.clock.mono_ms()
        if rest_ms > 0:
            updated = asyncio.get_running_loop().create_future()
            self._waiting.append(updated)
            try:
                async with asyncio.timeout(rest_ms / 1000):
                    await updated
                return
            except TimeoutError:
                pass
        cause = "" if self._last_error is None else f"; the last answer: {self._last_error}"
        raise TimedOut(problem + cause)

    async def refresh(self) -> None:
        """One update now, failures raised: for administrators."""
        self._needs_full_update = True
        await self._update()

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._rest_of_age_ms() / 1000):
                    await self._needs_update.wait()
            except TimeoutError:
                self._needs_full_update = True
            await self._pause()
            self._needs_update.clear()
            try:
                await self._update()
            except ClientError as error:
                self._failed(error)
                await asyncio.sleep(self._backoff_ms() / 1000)
            self._updated_ms = self._runtime.clock.mono_ms()

    def _rest_of_age_ms(self) -> int:
        """Until metadata.max.age.ms asks for a full update; partial ones do not put it off."""
        age_max_ms = self._settings.metadata_max_age_ms
        if self._fully_updated_ms is None:
            return age_max_ms
        return max(0, self._fully_updated_ms + age_max_ms - self._runtime.clock.mono_ms())

    async def _pause(self) -> None:
        """Between an update and the next that somebody asks for who has got it: a partition without
        a leader, or one that is not there, may be waited for long. The pauses grow from a
        millisecond, as most of that has passed by then, to retry.backoff.ms."""
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
        is_full = self._needs_full_update or not new_topics or not self._rest_of_age_ms()
        self._needs_full_update = False
        try:
            await self._ask(None if self._wants_all else self._wanted if is_full else new_topics)
        except ClientError:
            self._new_topics |= new_topics & self._wanted.keys()
            self._needs_full_update |= is_full
            raise
        if is_full:
            self._fully_updated_ms = self._runtime.clock.mono_ms()
        self._tell()

    async def _ask(self, topics: Iterable[str] | None) -> None:
        """None: for all topics there are."""
        names = None if topics is None else sorted(topics)
        answer = await self._network.ask(
            lambda version: _question(names, version, creates=self._creates_topics),
            MetadataResponse,
        )
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._network.forget_brokers()
        if answer.error_code:
            raise broker_error(answer.error_code, "metadata")
        if not self.cache.learn(answer, covers_all=names is None):
            raise NoBrokers("metadata: the answer names no brokers; the cluster may be starting")
        self._network.learn(list(self.cache.brokers.values()))
        self._failures = 0
        self._last_error = None
        self._unreachable_since_ms = None

    def _failed(self, error: ClientError) -> None:
        """The question is asked again after a back-off; those who cannot wait for that are told
        what was wrong when their time is up. Errors that will not pass end the waiting now."""
        self._failures += 1
        self._last_error = error
        self._needs_update.set()
        self._consider_bootstrapping_again()
        if not error.is_retriable:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(error)

    def _consider_bootstrapping_again(self) -> None:
        """No broker that we know answers for long: the cluster may have moved as a whole."""
        settings = self._settings
        now_ms = self._runtime.clock.mono_ms()
        if self._unreachable_since_ms is None:
            self._unreachable_since_ms = now_ms
        if settings.metadata_recovery_strategy.lower() != "rebootstrap":
            return
        silent_ms = now_ms - self._unreachable_since_ms
        all_failed = self._failures >= max(1, len(self._network.brokers))
        if all_failed or silent_ms >= settings.metadata_recovery_rebootstrap_trigger_ms:
            self._network.forget_brokers()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        for listener in list(self._listeners):
            listener()

    def _drop_idle_topics(self) -> None:
        before_ms = self._runtime.clock.mono_ms() - self._max_idle_ms
        idle = [name for name, used_ms in self._wanted.items() if used_ms < before_ms]
        for name in idle:
            del self._wanted[name]
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


def _question(names: list[str] | None, version: int, *, creates: bool) -> MetadataRequest:
    """`names`: None asks for all topics; version 0 says that with an empty list."""
    topics: list[MetadataRequestTopic] | None
    if names is None:
        topics = None if version > 0 else []
    else:
        topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
