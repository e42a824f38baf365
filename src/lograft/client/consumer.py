"""The consumer: records out of the partitions that it has chosen or that its group gives it.

async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
    consumer.subscribe(["greetings"])
    async for record in consumer:
        print(record.partition, record.offset, record.value)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from lograft.client.consuming.bell import Bell
from lograft.client.consuming.commits import Commits, Identity
from lograft.client.consuming.coordinator import Coordinator
from lograft.client.consuming.fetcher import Fetcher
from lograft.client.consuming.interceptors import ConsumerInterceptors
from lograft.client.consuming.newest import newest
from lograft.client.consuming.offsets import OffsetLookup
from lograft.client.consuming.outlet import Outlet, Polled
from lograft.client.consuming.positions import Positions
from lograft.client.consuming.ready import Ready
from lograft.client.consuming.records import Decoders
from lograft.client.consuming.resets import EARLIEST, LATEST, ResetKind, ResetPolicy
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.subscription import Position, Subscription
from lograft.client.consuming.topics import all_topics, topic_info
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, TimedOut, WrongUse
from lograft.client.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicInfo,
    TopicPartition,
)
from lograft.model.seams import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from lograft.client.keywords import ConsumerKeywords

log = logging.getLogger("lograft.client")

_CLOSE_TIMEOUT_MS: Final = 30_000

T = TypeVar("T")


class Consumer:
    """Belongs to the event loop in which it was opened; one task at a time may wait in it for
    records. Settings are Kafka's, by their dotted names in a mapping or as keywords; `runtime` is
    for simulations."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        runtime: Runtime | None = None,
        **keywords: "Unpack[ConsumerKeywords]",
    ) -> None:
        self.settings = ConsumerSettings.read(settings or {}, **keywords)
        self._runtime = runtime
        self._core: ClientCore[ConsumerSettings] | None = None
        self._interceptors = ConsumerInterceptors(self.settings.interceptor_classes)
        self._subscription = Subscription()
        self._is_polled = False

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Opens the consumer. Nobody is asked yet: brokers that are not there show when something
        is wanted of them."""
        if self._core is not None:
            raise WrongUse("the consumer has been started already")
        settings = self.settings
        core = self._core = ClientCore(
            settings, creates_topics=settings.allow_auto_create_topics, runtime=self._runtime
        )
        self._bell = Bell(core.runtime.clock)
        self._lookup = OffsetLookup(core)
        self._commits: Commits | None = None
        if settings.group_id is not None:
            self._coordinator = Coordinator(core, settings.group_id)
            self._commits = Commits(core, self._coordinator, self._identity)
        self._positions = Positions(
            core,
            self._subscription,
            self._lookup,
            committed=None if self._commits is None else self._commits.committed_once,
            on_news=self._on_position,
        )
        self._fetcher = Fetcher(
            core, self._subscription, on_news=self._bell.ring, on_reset=self._positions.wake
        )
        self._decoders = Decoders(settings.key_deserializer, settings.value_deserializer)
        self._outlet = Outlet(
            self._subscription,
            self._decoders,
            checks_crcs=settings.check_crcs,
            on_room=self._on_room,
        )
        self._next_auto_commit_ms = core.now_ms() + settings.auto_commit_interval_ms
        self._positions.start()
        self._fetcher.start()

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Commits what was handed out (with enable.auto.commit), and ends."""
        core = self._core
        if core is None or core.is_closed:
            return
        try:
            if self.settings.auto_commits:
                await self.commit(timeout_ms=timeout_ms)
        except ClientError as error:
            log.warning("the last positions are not committed: %s", error)
        finally:
            self._fetcher.close()
            await core.close()
            self._bell.ring()

    # ── which partitions ─────────────────────────────────────────────────────────────────────

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these, without a group's help."""
        core = self._open_core()
        self._subscription.assign(partitions)
        core.metadata.set_wanted(self._subscription.topics)
        self._positions.wake()
        self._fetcher.wake()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return set(self._subscription.partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives nothing of these until they are resumed; what was fetched of them is kept."""
        for one in partitions:
            self._subscription.state(one).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for one in partitions:
            self._subscription.state(one).is_paused = False
        self._fetcher.wake()
        self._bell.ring()

    def paused(self) -> set[TopicPartition]:
        return {state.partition for state in self._subscription if state.is_paused}

    # ── records ──────────────────────────────────────────────────────────────────────────────

    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> Polled:
        """The next records, by partition, at most max.poll.records; waits for the first of them,
        and gives nothing when the time is up."""
        count = max_records or self.settings.max_poll_records

        def take() -> Polled | None:
            return self._outlet.take(count) or None

        polled = await self._wait_for(take, timeout_ms)
        if polled and self._interceptors:
            polled = self._interceptors.on_consume(polled)
        return polled or {}

    async def fetch_arrow(
        self, timeout_ms: int | None = None, *, with_headers: bool = False
    ) -> "pa.Table":
        """All records that lie ready, as columns, without a Python object for each; waits for the
        first of them, and gives an empty table when the time is up. Keys and values are bytes:
        deserializers and interceptors see nothing of it."""
        from lograft.client.columns.reading import joined

        def take() -> "list[pa.RecordBatch] | None":
            return self._outlet.take_columns(with_headers=with_headers) or None

        batches = await self._wait_for(take, timeout_ms)
        return joined(batches or [], with_headers=with_headers)

    def __aiter__(self) -> "Consumer":
        return self

    def __anext__(self) -> Awaitable[ConsumerRecord]:
        record = self._outlet.next_ready() if self._core is not None else None
        return self._next() if record is None else Ready(record)

    async def _next(self) -> ConsumerRecord:
        while True:
            if self._core is not None and self._core.is_closed:
                raise StopAsyncIteration
            if self._interceptors:
                polled = await self.poll(max_records=1)
                found = [record for records in polled.values() for record in records]
                if found:
                    return found[0]
                continue
            await self._wait_for(self._begin_run, None)
            record = self._outlet.next_ready()
            if record is not None:
                return record

    def _begin_run(self) -> bool | None:
        return self._outlet.begin_run(self.settings.max_poll_records) or None

    async def _wait_for(self, take: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        """What `take` gives as soon as it gives something; None when the time is up."""
        core = self._open_core()
        if self._is_polled:
            raise WrongUse("another task waits in this consumer already: one at a time may")
        deadline_ms = None if timeout_ms is None else core.now_ms() + timeout_ms
        self._is_polled = True
        try:
            while True:
                self._bell.look()
                self._check_that_there_is_something_to_read()
                self._auto_commit()
                taken = take()
                if taken is not None:
                    return taken
                if not await self._wait(deadline_ms):
                    return None
                core.check_open()
        finally:
            self._is_polled = False

    async def _wait(self, deadline_ms: int | None) -> bool:
        """Until something has happened; False at the deadline."""
        if not self.settings.auto_commits:
            return await self._bell.wait(deadline_ms)
        until_ms = self._next_auto_commit_ms
        if deadline_ms is not None and deadline_ms <= until_ms:
            return await self._bell.wait(deadline_ms)
        await self._bell.wait(until_ms)
        return True

    def _check_that_there_is_something_to_read(self) -> None:
        if not self._subscription:
            raise WrongUse("nothing is assigned: call assign() or subscribe() first")

    # ── positions ────────────────────────────────────────────────────────────────────────────

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Goes on from there; what was fetched before is dropped."""
        state = self._subscription.state(partition)
        place = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if place.offset < 0:
            raise WrongUse(f"an offset is not negative: {place.offset}")
        state.seek(Position(place.offset, place.leader_epoch))
        self._on_sought()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """All assigned ones where none is named. Where that is, is asked when it is needed."""
        self._reset(partitions, ResetPolicy(ResetKind.EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """All assigned ones where none is named. Where that is, is asked when it is needed."""
        self._reset(partitions, ResetPolicy(ResetKind.LATEST))

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that the program gets."""
        state = self._subscription.state(partition)
        deadline_ms = self._deadline(timeout_ms)
        core = self._open_core()
        while not state.has_position:
            if state.error is not None:
                error, state.error = state.error, None
                raise error
            if core.now_ms() >= deadline_ms:
                raise TimedOut(f"the position of {state.partition} was not found in time")
            await self._positions.next_round(deadline_ms)
        return state.position.offset

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each of them has."""
        return await self._offsets_at(EARLIEST, partitions, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read."""
        return await self._offsets_at(LATEST, partitions, timeout_ms)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None: there is none yet."""
        self._open_core()
        for one, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise WrongUse(f"{one}: a time is not negative: {timestamp}")
        wanted = {TopicPartition(*one): timestamp for one, timestamp in timestamps_ms.items()}
        found = await self._lookup.look_up(wanted, self._deadline(timeout_ms))
        return {
            one: OffsetAndTimestamp(it.offset, it.timestamp_ms, it.leader_epoch)
            if it.offset >= 0
            else None
            for one, it in found.items()
        }

    async def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are behind the position, as far as the last fetch has told."""
        state = self._subscription.state(partition)
        end = state.last_stable_offset if self.settings.is_read_committed else state.high_watermark
        return max(0, end - state.position.offset) if state.has_position and end >= 0 else None

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits these, or the positions of all assigned partitions, and waits until it is done.
        Raises CommitFailed where the group has gone on without this member."""
        commits = self._open_commits()
        places = self._consumed() if offsets is None else _places(offsets)
        await commits.commit(places, self._deadline(timeout_ms))
        self._interceptors.on_commit(places)

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> "asyncio.Future[None]":
        """As `commit`, without waiting; commits keep their order. An error that nobody asks the
        future for is logged."""
        commits = self._open_commits()
        places = self._consumed() if offsets is None else _places(offsets)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await commits.commit(places, self._deadline(None))
            except ClientError as error:
                log.warning("offsets are not committed: %s", error)
                if not done.done():
                    done.set_exception(error)
                    done.exception()  # It has been told.
            else:
                self._interceptors.on_commit(places)
                if not done.done():
                    done.set_result(None)

        self._open_core().runtime.spawn(work(), name="consumer commit")
        return done

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        commits = self._open_commits()
        wanted = [TopicPartition(*one) for one in partitions]
        for topic in {one.topic for one in wanted}:
            self._open_core().metadata.use(topic)
        found = await commits.committed(wanted, self._deadline(timeout_ms))
        return {one: found.get(one) for one in wanted}

    # ── by key ───────────────────────────────────────────────────────────────────────────────

    async def get(
        self, topic: str, key: bytes | str, *, partition: int | None = None
    ) -> ConsumerRecord | None:
        """The newest record of a key, from the partition that its hash says; a record whose value
        is None says that the key was deleted, None that there is no record. Reads from the end
        backwards, and so all of the partition if the key is not there. No position changes."""
        raw = key.encode() if isinstance(key, str) else key
        record = await newest(self._open_core(), topic, raw, partition)
        return None if record is None else self._decoders.decoded(record)

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    async def topics(self) -> dict[str, TopicInfo]:
        """Every topic that this client may see."""
        return await all_topics(self._open_core())

    async def partitions_for(self, topic: str, timeout_ms: int | None = None) -> TopicInfo:
        """What the topic consists of; waits until it is known."""
        metadata = self._open_core().metadata
        return topic_info(await metadata.topic(topic, deadline_ms=self._deadline(timeout_ms)))

    def statistics(self) -> dict[str, int]:
        core = self._open_core()
        return {
            **self._fetcher.statistics(),
            **core.network.statistics(),
            "partitions_assigned": len(self._subscription),
        }

    # ── inside ───────────────────────────────────────────────────────────────────────────────

    def _open_core(self) -> ClientCore[ConsumerSettings]:
        core = self._core
        if core is None:
            raise WrongUse("the consumer is not open: use `async with`, or await start()")
        core.check_open()
        return core

    def _open_commits(self) -> Commits:
        self._open_core()
        if self._commits is None:
            raise WrongUse("without group.id there is nobody to commit for")
        return self._commits

    def _deadline(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            timeout_ms = self.settings.default_api_timeout_ms
        return self._open_core().now_ms() + timeout_ms

    def _identity(self) -> Identity:
        return Identity()

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            one: OffsetAndMetadata(place.offset, "", place.epoch)
            for one, place in self._subscription.positions().items()
        }

    def _auto_commit(self) -> None:
        if not self.settings.auto_commits:
            return
        now_ms = self._open_core().now_ms()
        if now_ms >= self._next_auto_commit_ms:
            self._next_auto_commit_ms = now_ms + self.settings.auto_commit_interval_ms
            self.commit_nowait()

    def _reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy) -> None:
        states = [self._subscription.state(one) for one in partitions] or list(self._subscription)
        for state in states:
            state.request_reset(policy)
        self._on_sought()

    async def _offsets_at(
        self, timestamp: int, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        self._open_core()
        wanted = dict.fromkeys((TopicPartition(*one) for one in partitions), timestamp)
        found = await self._lookup.look_up(wanted, self._deadline(timeout_ms))
        return {one: it.offset for one, it in found.items()}

    def _on_sought(self) -> None:
        self._positions.wake()
        self._fetcher.wake()
        self._bell.ring()

    def _on_position(self) -> None:
        self._fetcher.wake()
        self._bell.ring()

    def _on_room(self) -> None:
        self._positions.wake()
        self._fetcher.wake()


def _places(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*one): OffsetAndMetadata(place) if isinstance(place, int) else place
        for one, place in offsets.items()
    }
