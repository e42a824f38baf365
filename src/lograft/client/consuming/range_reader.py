"""Reads bounded ranges of offsets as columns, for batch jobs that plan what they read, and looks up
what such a plan needs: topics and offsets.

A planned range is read completely or fails with a specific error: its start has been deleted, the
log ends before the range does, or the topic has been deleted or recreated.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack
from uuid import UUID

from lograft.client.async_resource import AsyncResource
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_requests import (
    LAST_VERSION_WITH_TOPIC_NAMES,
    build_fetch_request,
)
from lograft.client.consuming.fetch_sessions import (
    LAST_EPOCH,
    NO_SESSION,
    FetchPlan,
    PartitionFetch,
)
from lograft.client.consuming.fetcher import FETCH_LANE
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.consuming.reset_policy import EARLIEST, LATEST
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.slices import Aborted, Slice
from lograft.client.consuming.topic_info import topic_info_of
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
from lograft.client.types import TopicInfo, TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.seams import FileSlice, Runtime
from lograft.model.types import ZERO_UUID
from lograft.wire.apis import FETCH_KEY
from lograft.wire.batches import BatchHeader
from lograft.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    import pyarrow as pa

    from lograft.client.keywords import ConsumerKeywords

#: A broker that has just started may not know a topic yet: it counts as deleted after this number
#: of responses in a row without it.
_MISSING_MAX: Final = 3


class DataLost(ClientError):
    """The range cannot be read as it was planned.

    async with RangeReader(bootstrap_servers="localhost:9092") as reader:
        try:
            async for batch in reader.read("greetings", 0, start=0, end=10):
                print(batch.num_rows)
        except (RangeStartDeleted, RangeEndUnavailable, TopicReplaced) as error:
            assert isinstance(error, DataLost)
    """

    def __init__(self, text: str, planned: "Range") -> None:
        super().__init__(f"{planned.partition}, offsets {planned.start} to {planned.end}: {text}")
        self.topic, self.partition = planned.partition
        self.start = planned.start
        self.end = planned.end


class RangeStartDeleted(DataLost):
    """The range starts before the log start offset: its first records have been deleted."""

    def __init__(self, planned: "Range", position: int, log_start: int) -> None:
        super().__init__(
            f"offset {position} has been deleted; the log starts at offset {log_start}", planned
        )
        self.log_start = log_start


class RangeEndUnavailable(DataLost):
    """The range ends after the last readable offset: after the high watermark, or with
    read_committed the last stable offset."""

    def __init__(self, planned: "Range", log_end: int) -> None:
        super().__init__(f"the log can be read only up to offset {log_end}", planned)
        self.log_end = log_end


class TopicReplaced(DataLost):
    """The topic has been deleted, or recreated under the same name."""

    def __init__(self, planned: "Range", topic_id: UUID | None) -> None:
        super().__init__(
            "the topic does not exist any more"
            if topic_id is None
            else f"the topic has been recreated with id {topic_id}",
            planned,
        )
        self.topic_id = topic_id


class Range(NamedTuple):
    partition: TopicPartition
    start: int
    end: int


class RangeReader(AsyncResource):
    """Takes the settings of a consumer, but needs no group. Several reads may run concurrently.

    async with RangeReader(bootstrap_servers="localhost:9092") as reader:
        partition = TopicPartition("greetings", 0)
        topics = await reader.find_topics(["greetings"])
        ends = await reader.find_offsets({partition: LATEST})
        batches = reader.read(
            "greetings", 0, start=0, end=ends[partition], topic_id=topics["greetings"].id
        )
        async for batch in batches:
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
            raise WrongUse("the reader is already started")
        self._core = ClientCore(self.settings, runtime=self._runtime)

    async def close(self) -> None:
        if self._core is not None:
            await self._core.close()

    def _describe_open(self) -> str | None:
        core = getattr(self, "_core", None)
        return None if core is None or core.is_closed else "range reader"

    async def find_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Returns those of the topics that exist now; without names, all topics. Retries until
        default.api.timeout.ms expires. Raises TimedOut, InvalidTopic and NotAuthorized."""
        core = self._open_core()
        metadata = core.metadata
        if names is None:
            metadata.use_all_topics()
        else:
            names = sorted(set(names))
            for name in names:
                metadata.use(name)
        await self._refresh_metadata(core)
        cache = metadata.cache
        found = {}
        for name in sorted(cache.topics) if names is None else names:
            topic = cache.topic(name)
            code = cache.error_of(name)
            if topic is not None:
                found[name] = topic_info_of(topic)
            elif code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise broker_error(code, f"topic {name!r}")
        return found

    async def find_offsets(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns the offset at EARLIEST, LATEST or a timestamp in ms for each partition, of topics
        that `find_topics` returned; -1 if no record has that timestamp or a later one. Retries
        until default.api.timeout.ms expires."""
        core = self._open_core()
        for partition in positions:
            if core.metadata.cache.partition(*partition) is None:
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        found = await OffsetLookup(core).look_up(positions, self._deadline_ms(core))
        return {partition: result.offset for partition, result in found.items()}

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
        """Yields the records in [start, end) in order, in batches that are not empty. With
        `topic_id`, a topic with another id is an error. Raises RangeStartDeleted,
        RangeEndUnavailable, TopicReplaced, TimedOut, BatchCorrupt …"""
        from lograft.client.columns.decoder import decode

        core = self._open_core()
        if start < 0 or end < start:
            raise WrongUse(f"0 <= start <= end is required, but start is {start} and end is {end}")
        planned = Range(TopicPartition(topic, partition), start, end)
        range_read = RangeRead(core, planned, topic_id)
        try:
            async for fetched in range_read.slices():
                batch = decode(
                    fetched.slice,
                    with_headers=with_headers,
                    checks_crcs=self.settings.check_crcs,
                )
                if fetched.next_offset > end:
                    batch = _rows_before(batch, end)
                if batch.num_rows:
                    yield batch
        finally:
            range_read.close()

    async def read_headers(
        self, topic: str, partition: int, *, start: int, end: int, topic_id: UUID | None = None
    ) -> AsyncIterator[BatchHeader]:
        """Yields the headers of all batches that overlap [start, end), including control batches
        and aborted transactions: the content of the log, not what a consumer sees."""
        core = self._open_core()
        planned = Range(TopicPartition(topic, partition), start, end)
        range_read = RangeRead(core, planned, topic_id)
        try:
            async for fetched in range_read.slices():
                for _, header in fetched.slice.batches:
                    if header.last_offset >= start and header.base_offset < end:
                        yield header
        finally:
            range_read.close()

    def _open_core(self) -> ClientCore[ConsumerSettings]:
        if self._core is None:
            raise WrongUse("the reader is not open: use `async with` or await start()")
        self._core.check_open()
        return self._core

    async def _refresh_metadata(self, core: ClientCore[ConsumerSettings]) -> None:
        """Retries until the metadata is refreshed; errors that are not retriable are raised."""
        deadline_ms = self._deadline_ms(core)
        while True:
            try:
                return await core.metadata.refresh()
            except ClientError as error:
                if not error.is_retriable:
                    raise
                if core.now_ms() >= deadline_ms:
                    raise TimedOut(
                        "the metadata could not be updated within default.api.timeout.ms; last"
                        f" error: {error}"
                    ) from error
            await asyncio.sleep(self.settings.retry_backoff_ms / 1000)

    def _deadline_ms(self, core: ClientCore[ConsumerSettings]) -> int:
        return core.now_ms() + self.settings.default_api_timeout_ms


class RangeRead:
    """Reads one range, and fetches the next slice while the caller processes the last one."""

    def __init__(
        self, core: ClientCore[ConsumerSettings], planned: Range, topic_id: UUID | None = None
    ) -> None:
        self._core = core
        self._settings = core.settings
        self._range = planned
        self._topic_id = topic_id
        self._lookup = OffsetLookup(core)
        #: The response of the next fetch, which is in flight.
        self._ahead: asyncio.Future[FetchResponse] | None = None

    async def slices(self) -> AsyncIterator[CompletedFetch]:
        position = self._range.start
        while position < self._range.end:
            fetched = await self._fetch_slice(position)
            position = fetched.next_offset
            if position < self._range.end:
                self._ahead = self._send_if_ready(position)
            yield fetched

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()

    async def _fetch_slice(self, position: int) -> CompletedFetch:
        """Retries until default.api.timeout.ms expires."""
        deadline_ms = self._core.now_ms() + self._settings.default_api_timeout_ms
        failures = 0
        while True:
            try:
                return await self._fetch(position, deadline_ms)
            except OffsetOutOfRange:
                await self._raise_if_lost(position, deadline_ms)
                error: ClientError = OutcomeUnknown("the log changed during the fetch")
            except ClientError as failure:
                if not failure.is_retriable or isinstance(failure, TimedOut):
                    raise
                error = failure
                self._core.metadata.request_update()
            if self._core.now_ms() >= deadline_ms:
                raise TimedOut(
                    f"{self._range.partition}: reading offset {position} timed out after"
                    f" default.api.timeout.ms; last error: {error}"
                ) from error
            failures += 1
            await self._lookup.back_off(failures)

    async def _fetch(self, position: int, deadline_ms: int) -> CompletedFetch:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            topic = await self._wait_for_topic(deadline_ms)
            known = topic.partition(self._range.partition.partition)
            if known is None:
                raise TopicReplaced(self._range, None)
            await self._core.network.connect(known.leader, FETCH_LANE)
            ahead = self._send_if_ready(position)
            if ahead is None:
                raise OutcomeUnknown(f"the connection to broker {known.leader} was closed")
        response = await ahead
        raise_for(response.error_code, f"{self._range.partition}: fetch")
        result = response.responses[0].partitions[0] if response.responses else None
        if result is None:
            raise OutcomeUnknown(f"the broker's response does not contain {self._range.partition}")
        raise_for(result.error_code, f"{self._range.partition} at offset {position}")
        data = result.records or b""
        assert not isinstance(data, FileSlice)
        aborted = None
        if self._settings.is_read_committed:
            aborted = [
                Aborted(aborted_transaction.producer_id, aborted_transaction.first_offset)
                for aborted_transaction in result.aborted_transactions or ()
            ]
        fetched = CompletedFetch(Slice(*self._range.partition, position, data, aborted))
        if fetched.next_offset == position:
            # The end of the log, or a new leader whose high watermark still lags behind.
            await self._raise_if_lost(position, deadline_ms)
            raise OutcomeUnknown(
                f"{self._range.partition}: the fetch at offset {position} returned no records"
            )
        return fetched

    def _send_if_ready(self, position: int) -> asyncio.Future[FetchResponse] | None:
        cache = self._core.metadata.cache
        topic = cache.topic(self._range.partition.topic)
        known = None if topic is None else topic.partition(self._range.partition.partition)
        if topic is None or known is None or topic.id != self._topic_id:
            return None
        connection = self._core.network.ready_connection(known.leader, FETCH_LANE)
        if connection is None:
            return None
        settings = self._settings
        partition_fetch = PartitionFetch(
            topic.id, position, known.leader_epoch, max(1, settings.max_partition_fetch_bytes)
        )
        uses_ids = topic.id != ZERO_UUID
        plan = FetchPlan(
            NO_SESSION, LAST_EPOCH, uses_ids, {self._range.partition: partition_fetch}, {}
        )
        return connection.send_for_future(
            build_fetch_request(settings, plan),
            FetchResponse,
            version=connection.version_of(
                FETCH_KEY, at_most=None if uses_ids else LAST_VERSION_WITH_TOPIC_NAMES
            ),
            timeout_ms=settings.request_timeout_ms,
        )

    async def _wait_for_topic(self, deadline_ms: int) -> Topic:
        """Waits for the metadata of the topic. Raises TopicReplaced if it has another id."""
        metadata = self._core.metadata
        name = self._range.partition.topic
        missing = 0
        while (topic := metadata.use(name)) is None:
            code = metadata.cache.error_of(name)
            error = broker_error(code, f"topic {name!r}")
            if isinstance(error, TopicMissing):
                missing += 1
                if missing == _MISSING_MAX:
                    raise TopicReplaced(self._range, None)
                metadata.request_update()
            elif code and not error.is_retriable:
                raise error
            await metadata.wait_update(deadline_ms, f"topic {name!r} is not known")
        if self._topic_id is None:
            self._topic_id = topic.id
        if topic.id != self._topic_id:
            raise TopicReplaced(self._range, topic.id)
        return topic

    async def _raise_if_lost(self, position: int, deadline_ms: int) -> None:
        """Raises RangeStartDeleted or RangeEndUnavailable if the leader's log does not contain the
        rest of the range."""
        partition = self._range.partition
        log_start = (await self._lookup.look_up({partition: EARLIEST}, deadline_ms))[
            partition
        ].offset
        if position < log_start:
            raise RangeStartDeleted(self._range, position, log_start)
        log_end = (await self._lookup.look_up({partition: LATEST}, deadline_ms))[partition].offset
        if log_end < self._range.end:
            raise RangeEndUnavailable(self._range, log_end)


def _rows_before(batch: "pa.RecordBatch", end: int) -> "pa.RecordBatch":
    """Returns the rows with offsets below `end`. Rows are sorted by offset."""
    import numpy as np

    offsets = batch.column("offset").to_numpy()
    return batch.slice(0, int(np.searchsorted(offsets, end)))
