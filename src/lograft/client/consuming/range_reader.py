"""Bounded ranges of offsets as columns: for batch jobs that know what they want to read.

A range that was planned is there, or is not: what was deleted since, a log that ends before the
range does, and a topic that was made anew under the old name are errors that say so.
"""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack
from uuid import UUID

from lograft.client.async_resource import AsyncResource
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_requests import FETCH_NAMES_UNTIL, fetch_request
from lograft.client.consuming.fetch_sessions import LAST_EPOCH, NO_SESSION, Plan, Wanted
from lograft.client.consuming.fetcher import FETCH_LANE
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.consuming.reset_policy import EARLIEST, LATEST
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.slices import Aborted, Slice
from lograft.client.core import ClientCore
from lograft.client.errors import (
    ClientError,
    OffsetOutOfRange,
    OutcomeUnknown,
    TimedOut,
    TopicMissing,
    WrongUse,
    broker_error,
    raise_for,
)
from lograft.client.metadata import Topic
from lograft.client.types import TopicPartition
from lograft.model.seams import FileSlice, Runtime
from lograft.model.types import ZERO_UUID
from lograft.wire.apis import FETCH_KEY
from lograft.wire.batches import BatchHeader
from lograft.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    import asyncio

    import pyarrow as pa

    from lograft.client.keywords import ConsumerKeywords

#: A broker that has just come up may not know a topic yet; so many answers in a row are believed.
_MISSING_MAX: Final = 3


class DataLost(ClientError):
    """The range cannot be read as it was planned.

    async with RangeReader(bootstrap_servers="localhost:9092") as reader:
        try:
            async for batch in reader.read("greetings", 0, start=0, end=10):
                print(batch.num_rows)
        except (StartLost, EndBeyond, TopicReplaced) as error:
            assert isinstance(error, DataLost)
    """

    def __init__(self, text: str, wanted: "Range") -> None:
        super().__init__(f"{wanted.partition}, offsets {wanted.start} to {wanted.end}: {text}")
        self.topic, self.partition = wanted.partition
        self.start = wanted.start
        self.end = wanted.end


class StartLost(DataLost):
    """The range begins before the log does: its records were deleted."""

    def __init__(self, wanted: "Range", position: int, log_start: int) -> None:
        super().__init__(
            f"offset {position} is not there any more, the log begins at {log_start}", wanted
        )
        self.log_start = log_start


class EndBeyond(DataLost):
    """The range ends behind what can be read: the high watermark, or with read_committed the last
    stable offset."""

    def __init__(self, wanted: "Range", log_end: int) -> None:
        super().__init__(f"what can be read ends at offset {log_end}", wanted)
        self.log_end = log_end


class TopicReplaced(DataLost):
    """The topic is another one under the same name, or is gone."""

    def __init__(self, wanted: "Range", topic_id: UUID | None) -> None:
        super().__init__(
            "the topic is gone" if topic_id is None else f"the topic is a new one ({topic_id})",
            wanted,
        )
        self.topic_id = topic_id


class Range(NamedTuple):
    partition: TopicPartition
    start: int
    end: int


class RangeReader(AsyncResource):
    """Settings are a consumer's; it needs no group. Several reads may run at once.

    async with RangeReader(bootstrap_servers="localhost:9092") as reader:
        async for batch in reader.read("greetings", 0, start=0, end=1_000):
            print(batch.num_rows)
    """

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

    async def start(self) -> None:
        if self._core is not None:
            raise WrongUse("the reader has been started already")
        self._core = ClientCore(self.settings, runtime=self._runtime)

    async def close(self) -> None:
        if self._core is not None:
            await self._core.close()

    def _describe_open(self) -> str | None:
        core = getattr(self, "_core", None)
        return None if core is None or core.is_closed else "range reader"

    async def read(
        self,
        topic: str,
        partition: int,
        *,
        start: int,
        end: int,
        topic_id: UUID | None = None,
        with_headers: bool = False,
    ) -> "AsyncIterator[pa.RecordBatch]":
        """The records at [start, end), in order; batches are never empty. `topic_id`: the topic has
        to be that one. Raises StartLost, EndBeyond, TopicReplaced, TimedOut, BatchCorrupt …"""
        from lograft.client.columns.decoder import decode

        core = self._open_core()
        if start < 0 or end < start:
            raise WrongUse(f"a range goes up from 0: start is {start}, end is {end}")
        wanted = Range(TopicPartition(topic, partition), start, end)
        one = RangeRead(core, wanted, topic_id)
        try:
            async for fetched in one.slices():
                batch = decode(
                    fetched.slice,
                    with_headers=with_headers,
                    checks_crcs=self.settings.check_crcs,
                )
                if fetched.next_offset > end:
                    batch = _before(batch, end)
                if batch.num_rows:
                    yield batch
        finally:
            one.close()

    async def read_headers(
        self, topic: str, partition: int, *, start: int, end: int, topic_id: UUID | None = None
    ) -> AsyncIterator[BatchHeader]:
        """The headers of all batches that reach into [start, end), markers and batches of aborted
        transactions among them: what is in the log, not what a consumer sees."""
        core = self._open_core()
        wanted = Range(TopicPartition(topic, partition), start, end)
        one = RangeRead(core, wanted, topic_id)
        try:
            async for fetched in one.slices():
                for _, header in fetched.slice.batches:
                    if header.last_offset >= start and header.base_offset < end:
                        yield header
        finally:
            one.close()

    def _open_core(self) -> ClientCore[ConsumerSettings]:
        if self._core is None:
            raise WrongUse("the reader is not open: use `async with`, or await start()")
        self._core.check_open()
        return self._core


class RangeRead:
    """One range: fetches its slices, the next one while the last is used."""

    def __init__(
        self, core: ClientCore[ConsumerSettings], wanted: Range, topic_id: UUID | None = None
    ) -> None:
        self._core = core
        self._settings = core.settings
        self._wanted = wanted
        self._topic_id = topic_id
        self._lookup = OffsetLookup(core)
        self._ahead: asyncio.Future[FetchResponse] | None = None

    async def slices(self) -> AsyncIterator[CompletedFetch]:
        position = self._wanted.start
        while position < self._wanted.end:
            fetched = await self._slice_at(position)
            position = fetched.next_offset
            if position < self._wanted.end:
                self._ahead = self._send_if_ready(position)
            yield fetched

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()

    async def _slice_at(self, position: int) -> CompletedFetch:
        """Tries for default.api.timeout.ms."""
        deadline_ms = self._core.now_ms() + self._settings.default_api_timeout_ms
        failures = 0
        while True:
            try:
                return await self._fetch(position, deadline_ms)
            except OffsetOutOfRange:
                await self._explain(position, deadline_ms)
                error: ClientError = OutcomeUnknown("the log has changed in the meantime")
            except ClientError as failure:
                if not failure.is_retriable or isinstance(failure, TimedOut):
                    raise
                error = failure
                self._core.metadata.request_update()
            if self._core.now_ms() >= deadline_ms:
                raise TimedOut(
                    f"{self._wanted.partition} at offset {position} was not read within"
                    f" default.api.timeout.ms; the last: {error}"
                ) from error
            failures += 1
            await self._lookup.back_off(failures)

    async def _fetch(self, position: int, deadline_ms: int) -> CompletedFetch:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            topic = await self._topic(deadline_ms)
            known = topic.partition(self._wanted.partition.partition)
            if known is None:
                raise TopicReplaced(self._wanted, None)
            await self._core.network.connect(known.leader, FETCH_LANE)
            ahead = self._send_if_ready(position)
            if ahead is None:
                raise OutcomeUnknown(f"broker {known.leader} went away")
        answer = await ahead
        raise_for(answer.error_code, f"{self._wanted.partition}: fetch")
        told = answer.responses[0].partitions[0] if answer.responses else None
        if told is None:
            raise OutcomeUnknown(f"the broker's answer leaves out {self._wanted.partition}")
        raise_for(told.error_code, f"{self._wanted.partition} at offset {position}")
        data = told.records or b""
        assert not isinstance(data, FileSlice)
        aborted = None
        if self._settings.is_read_committed:
            aborted = [
                Aborted(one.producer_id, one.first_offset)
                for one in told.aborted_transactions or ()
            ]
        fetched = CompletedFetch(Slice(*self._wanted.partition, position, data, aborted))
        if fetched.next_offset == position:
            # A new leader may not know yet how far the log is committed: it is asked.
            await self._explain(position, deadline_ms)
            raise OutcomeUnknown(f"{self._wanted.partition} gave nothing at offset {position}")
        return fetched

    def _send_if_ready(self, position: int) -> "asyncio.Future[FetchResponse] | None":
        cache = self._core.metadata.cache
        topic = cache.topic(self._wanted.partition.topic)
        known = None if topic is None else topic.partition(self._wanted.partition.partition)
        if topic is None or known is None or topic.id != self._topic_id:
            return None
        link = self._core.network.ready_connection(known.leader, FETCH_LANE)
        if link is None:
            return None
        settings = self._settings
        wanted = Wanted(
            topic.id, position, known.leader_epoch, max(1, settings.max_partition_fetch_bytes)
        )
        uses_ids = topic.id != ZERO_UUID
        plan = Plan(NO_SESSION, LAST_EPOCH, uses_ids, {self._wanted.partition: wanted}, {})
        return link.send_for_future(
            fetch_request(settings, plan),
            FetchResponse,
            version=link.version_of(FETCH_KEY, at_most=None if uses_ids else FETCH_NAMES_UNTIL),
            timeout_ms=settings.request_timeout_ms,
        )

    async def _topic(self, deadline_ms: int) -> Topic:
        """The topic, which has to be the one that the range is of."""
        metadata = self._core.metadata
        name = self._wanted.partition.topic
        missing = 0
        while (topic := metadata.use(name)) is None:
            code = metadata.cache.error_of(name)
            error = broker_error(code, f"topic {name!r}")
            if isinstance(error, TopicMissing):
                missing += 1
                if missing == _MISSING_MAX:
                    raise TopicReplaced(self._wanted, None)
                metadata.request_update()
            elif code and not error.is_retriable:
                raise error
            await metadata.wait_update(deadline_ms, f"topic {name!r} is not known")
        if self._topic_id is None:
            self._topic_id = topic.id
        if topic.id != self._topic_id:
            raise TopicReplaced(self._wanted, topic.id)
        return topic

    async def _explain(self, position: int, deadline_ms: int) -> None:
        """Raises StartLost or EndBeyond if the log is so."""
        one = self._wanted.partition
        log_start = (await self._lookup.look_up({one: EARLIEST}, deadline_ms))[one].offset
        if position < log_start:
            raise StartLost(self._wanted, position, log_start)
        log_end = (await self._lookup.look_up({one: LATEST}, deadline_ms))[one].offset
        if log_end < self._wanted.end:
            raise EndBeyond(self._wanted, log_end)


def _before(batch: "pa.RecordBatch", end: int) -> "pa.RecordBatch":
    """The rows of offsets below `end`; offsets go up."""
    import numpy as np

    offsets = batch.column("offset").to_numpy()
    return batch.slice(0, int(np.searchsorted(offsets, end)))
