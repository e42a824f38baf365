"""Spans of records that have a W3C trace context: produce, replicate and deliver.

Exists only if `lograft.otlp.traces.enable` is true; Produce and Fetch requests then take the
general path, which reports each append and each delivery here. Reporting copies a batch that
contains the word traceparent (append), or keeps a reference to the slice of the log (delivery).
Batches are opened later, by a worker's job, when the exporter takes the spans. Everything is
bounded: batches that wait, their bytes, the spans of a batch. What exceeds a limit is dropped and
counted.

A record has spans if its traceparent is valid, has the sampled flag, and belongs to the configured
ratio of traces. Compressed batches are opened only if `lograft.otlp.traces.compressed.enable` is
true.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from lograft.broker.partitions.partition import Partition
from lograft.model.errors import LograftError
from lograft.model.metrics import Counter, Sample
from lograft.model.printable_text import printable
from lograft.model.seams import FileSlice, Runtime, Task
from lograft.model.settings.otlp import OtlpSettings
from lograft.model.trace_context import (
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
    parse_trace_context,
)
from lograft.model.types import Epoch, Offset
from lograft.storage.types import AppendResult
from lograft.wire.batches import (
    CODEC_MASK,
    Record,
    iterate_headers,
    parse_records,
    read_header,
    unpack_records,
)
from lograft.wire.errors import WireError
from lograft.wire.otlp_requests import AttributeValue, Span, SpanKind

#: Batches, and slices of the log, that wait to be opened.
WAITING_MAX: Final = 512
WAITING_BYTES_MAX: Final = 16 << 20
#: Of a batch, and of the batches in one delivery; what follows is not searched.
SEARCHED_BYTES_MAX: Final = 1 << 20
#: Of an opened batch.
UNPACKED_BYTES_MAX: Final = 4 << 20
SPANS_PER_BATCH_MAX: Final = 100
#: Appends whose commit is awaited; further ones have no span of their replication.
COMMIT_WAITS_MAX: Final = 256
COMMIT_TIMEOUT_MS: Final = 30_000
CLIENT_ID_LENGTH_MAX: Final = 255
WALL_ERROR_NS_MAX: Final = 100_000_000
#: Opened by one job of a worker.
_OPENED_MAX: Final = 32
_SOUGHT: Final = TRACEPARENT.encode()

BATCHES_DROPPED: Final = Counter(
    "lograft_otlp_batches_dropped_total",
    "Batches that were not searched for trace contexts, because they are too large or malformed,"
    " or too many were waiting.",
)
SPANS_DROPPED: Final = Counter(
    "lograft_otlp_spans_dropped_total",
    "Spans that were not exported, because a batch has too many or the collector did not accept"
    " them.",
)


class _Traced(NamedTuple):
    """An append or a delivery whose records may have trace contexts."""

    #: Of an append, its batch.
    records: bytes | FileSlice
    topic: str
    partition_index: int
    client_id: str
    #: Of the first record that was appended or requested.
    offset: int
    started_ns: int
    ended_ns: int
    #: 0: the records are not replicated, or that was not followed.
    committed_ns: int = 0
    #: Why the records were not committed.
    error: str = ""


class RecordTraces:
    """Owned by the node. `close` ends its tasks."""

    def __init__(self, runtime: Runtime, settings: OtlpSettings) -> None:
        self._runtime = runtime
        self._ratio = settings.traces_ratio
        self._opens_compressed = settings.opens_compressed
        self._waiting: deque[_Traced] = deque()
        self._waiting_bytes = 0
        #: By number.
        self._commit_waits: dict[int, Task] = {}
        self._commit_waits_begun = 0
        #: The wall clock's time at the beginning of the monotonic clock.
        self._wall_base_ns = 0
        self._batches_dropped = 0
        self._spans_dropped = 0
        #: Set when a batch waits.
        self.has_waiting = asyncio.Event()

    def close(self) -> None:
        for task in self._commit_waits.values():
            task.cancel()

    def collect_samples(self) -> Iterator[Sample]:
        yield BATCHES_DROPPED.sample(self._batches_dropped)
        yield SPANS_DROPPED.sample(self._spans_dropped)

    def now_ns(self) -> int:
        """Returns the wall clock's time in the resolution of the monotonic clock."""
        wall_ns = self._runtime.clock.wall_ms() * 1_000_000
        mono_ns = self._runtime.clock.mono_ns()
        if abs(wall_ns - self._wall_base_ns - mono_ns) > WALL_ERROR_NS_MAX:
            # The first call, or the wall clock was set.
            self._wall_base_ns = wall_ns - mono_ns
        return self._wall_base_ns + mono_ns

    def count_dropped(self, spans: int) -> None:
        self._spans_dropped += spans

    # ── reports of the data path ─────────────────────────────────────────────────────────────

    def on_appended(
        self,
        partition: Partition,
        records: memoryview,
        result: AppendResult,
        *,
        client_id: str | None,
        started_ns: int,
    ) -> None:
        """One batch was appended. `records` may change after this call."""
        if result.duplicate:
            return
        if len(records) > SEARCHED_BYTES_MAX:
            self._batches_dropped += 1
            return
        batch = bytes(records)
        if not self._may_have_contexts(batch):
            return
        traced = _Traced(
            batch,
            partition.topic,
            partition.index,
            _describe_client(client_id),
            result.base_offset,
            started_ns,
            self.now_ns(),
        )
        if len(partition.assignment.replicas) == 1 or len(self._commit_waits) >= COMMIT_WAITS_MAX:
            self._add(traced)
            return
        number = self._commit_waits_begun = self._commit_waits_begun + 1
        following = self._follow(
            number, partition, traced, end=result.end_offset, leader_epoch=partition.leader_epoch
        )
        self._commit_waits[number] = self._runtime.spawn(
            following, name="replication of a traced batch"
        )

    def on_delivered(
        self,
        partition: tuple[str, int],
        part: FileSlice,
        *,
        offset: int,
        client_id: str | None,
        started_ns: int,
    ) -> None:
        """A consumer is sent records from this offset on."""
        topic, index = partition
        self._add(
            _Traced(
                part,
                topic,
                index,
                _describe_client(client_id),
                offset,
                started_ns,
                self.now_ns(),
            )
        )

    async def _follow(
        self,
        number: int,
        partition: Partition,
        traced: _Traced,
        *,
        end: Offset,
        leader_epoch: Epoch,
    ) -> None:
        error = ""
        try:
            await partition.wait_committed(
                end, timeout_ms=COMMIT_TIMEOUT_MS, leader_epoch=leader_epoch
            )
        except LograftError as failure:
            error = str(failure)
        finally:
            del self._commit_waits[number]
        self._add(traced._replace(committed_ns=self.now_ns(), error=error))

    def _may_have_contexts(self, batch: bytes) -> bool:
        if read_header(batch).compression:
            return self._opens_compressed
        return _SOUGHT in batch

    def _add(self, traced: _Traced) -> None:
        size = _held_bytes(traced)
        if len(self._waiting) >= WAITING_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
            self._batches_dropped += 1
            return
        self._waiting.append(traced)
        self._waiting_bytes += size
        self.has_waiting.set()

    # ── spans ────────────────────────────────────────────────────────────────────────────────

    async def take_spans(self) -> list[Span]:
        """Returns the spans of the batches that have waited longest. Clears `has_waiting` if no
        others are left."""
        taken: list[_Traced] = []
        while self._waiting and len(taken) < _OPENED_MAX:
            traced = self._waiting.popleft()
            self._waiting_bytes -= _held_bytes(traced)
            taken.append(traced)
        if not self._waiting:
            self.has_waiting.clear()
        found = await self._runtime.workers.run(lambda: [self._find(each) for each in taken])
        spans: list[Span] = []
        for traced, records in zip(taken, found, strict=True):
            if records is None:
                self._batches_dropped += 1
                continue
            for number, (offset, context) in enumerate(records):
                spans_of_record = self._make_spans(traced, offset, context)
                if number < SPANS_PER_BATCH_MAX:
                    spans += spans_of_record
                else:
                    self._spans_dropped += len(spans_of_record)
        return spans

    def _find(self, traced: _Traced) -> list[tuple[int, TraceContext]] | None:
        """Returns the offsets and contexts of the records that have spans; None if the batches are
        malformed or cannot be read. Runs in a worker."""
        try:
            if isinstance(traced.records, bytes):
                return list(self._find_appended(traced.records, traced.offset))
            return list(self._find_delivered(traced.records, traced.offset))
        except (WireError, OSError):
            return None

    def _find_appended(self, batch: bytes, offset: int) -> Iterator[tuple[int, TraceContext]]:
        base = read_header(batch).base_offset
        for record in self._read(batch):
            context = self._sampled_context(record)
            if context is not None:
                # The copy may be older than the offsets that the log assigned.
                yield offset + record.offset - base, context

    def _find_delivered(self, part: FileSlice, offset: int) -> Iterator[tuple[int, TraceContext]]:
        data = part.file.pread(min(part.size, SEARCHED_BYTES_MAX), part.position)
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_bytes]
            if header.is_control or not self._may_have_contexts(batch):
                continue
            for record in self._read(batch):
                # The consumer skips those before the offset that it requested.
                if record.offset >= offset:
                    context = self._sampled_context(record)
                    if context is not None:
                        yield record.offset, context

    def _read(self, batch: bytes) -> Iterator[Record]:
        header = read_header(batch)
        payload = unpack_records(batch, header, bytes_max=UNPACKED_BYTES_MAX)
        if header.attributes & CODEC_MASK and _SOUGHT not in payload:
            return iter(())
        return parse_records(payload, header)

    def _sampled_context(self, record: Record) -> TraceContext | None:
        values = {key: value for key, value in record.headers if value is not None}
        parent = values.get(TRACEPARENT)
        if parent is None:
            return None
        context = parse_trace_context(parent, values.get(TRACESTATE))
        if context is None or not context.is_sampled or not context.is_within(self._ratio):
            return None
        return context

    def _make_spans(self, traced: _Traced, offset: int, context: TraceContext) -> list[Span]:
        is_delivery = isinstance(traced.records, FileSlice)
        attributes: list[tuple[str, AttributeValue]] = [
            ("messaging.system", "kafka"),
            ("messaging.destination.name", traced.topic),
            ("messaging.destination.partition.id", str(traced.partition_index)),
            ("messaging.kafka.offset", offset),
        ]
        if traced.client_id:
            attributes.append(("messaging.client.id", traced.client_id))
        first = Span(
            context,
            self._new_id(),
            f"{'deliver' if is_delivery else 'produce'} {traced.topic}",
            SpanKind.SERVER,
            traced.started_ns,
            traced.ended_ns,
            tuple(attributes),
        )
        if not traced.committed_ns:
            return [first]
        replication = Span(
            context._replace(span_id=first.span_id),
            self._new_id(),
            f"replicate {traced.topic}",
            SpanKind.INTERNAL,
            traced.ended_ns,
            traced.committed_ns,
            tuple(attributes),
            is_parent_remote=False,
            error=traced.error,
        )
        return [first, replication]

    def _new_id(self) -> bytes:
        # The only invalid id has no bit set.
        return self._runtime.randomness.bytes(7) + b"\x01"


def _held_bytes(traced: _Traced) -> int:
    return len(traced.records) if isinstance(traced.records, bytes) else 0


def _describe_client(client_id: str | None) -> str:
    return printable((client_id or "")[:CLIENT_ID_LENGTH_MAX])
