"""Spans of records in appended and delivered batches."""

import asyncio
from collections.abc import Sequence
from typing import Any

from lograft.broker import record_traces
from lograft.broker.record_traces import BATCHES_DROPPED, SPANS_DROPPED, RecordTraces
from lograft.model.metrics import value_of
from lograft.model.seams import Address, FileSlice
from lograft.model.settings.otlp import OtlpSettings
from lograft.model.types import Offset
from lograft.storage.types import AppendResult
from lograft.testing import VirtualCluster
from lograft.wire.batches import Record, RecordHeader, build_batch
from lograft.wire.compression import Codec
from lograft.wire.otlp_requests import Span
from tests.support.scenarios import run_in_virtual_cluster, scenario

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
NOT_SAMPLED = SAMPLED[:-1] + b"0"


class FakeFile:
    def __init__(self, data: bytes, error: OSError | None = None) -> None:
        self._data = data
        self._error = error

    def pread(self, size: int, position: int) -> bytes:
        if self._error is not None:
            raise self._error
        return self._data[position : position + size]


def settings_of(*, ratio: float = 1.0, opens_compressed: bool = False) -> OtlpSettings:
    return OtlpSettings(
        address=Address("collector", 4318),
        uses_tls=False,
        path="",
        headers=(),
        metrics_interval_ms=0,
        exports_traces=True,
        traces_ratio=ratio,
        opens_compressed=opens_compressed,
    )


def traces_of(cluster: VirtualCluster, **settings: Any) -> RecordTraces:
    return RecordTraces(cluster.node(1).broker.runtime, settings_of(**settings))


def batch_of(parents: Sequence[bytes | None], *, base: int = 0, codec: int = Codec.NONE) -> bytes:
    """Returns a batch with a record for each traceparent; without the header for None."""
    return build_batch(
        [
            Record(
                base + number,
                0,
                None,
                b"v",
                () if parent is None else (RecordHeader("traceparent", parent),),
            )
            for number, parent in enumerate(parents)
        ],
        compression=codec,
    )


def append(cluster: VirtualCluster, traces: RecordTraces, batch: bytes, **changes: Any) -> None:
    partition = cluster.node(1).broker.partitions.get("t", 0)
    assert partition is not None
    result = AppendResult(Offset(100), Offset(100), -1, Offset(0), 0)._replace(**changes)
    traces.on_appended(
        partition, memoryview(batch), result, client_id="c\n", started_ns=traces.now_ns()
    )


def deliver(traces: RecordTraces, data: bytes, *, offset: int = 0, error: Any = None) -> None:
    part = FileSlice(FakeFile(b"head" + data, error), 4, len(data))  # type: ignore[arg-type]
    traces.on_delivered(("t", 0), part, offset=offset, client_id=None, started_ns=traces.now_ns())


def offsets_of(spans: Sequence[Span]) -> list[Any]:
    return [dict(span.attributes)["messaging.kafka.offset"] for span in spans]


async def create_topic(cluster: VirtualCluster) -> None:
    await cluster.test_client().create_topic("t")
    while cluster.node(1).broker.partitions.get("t", 0) is None:
        await asyncio.sleep(0.1)


@scenario(run_in_virtual_cluster, nodes=1)
async def test_only_sampled_records_of_an_append_have_spans(cluster: VirtualCluster, /) -> None:
    await create_topic(cluster)
    traces = traces_of(cluster)
    append(cluster, traces, batch_of([SAMPLED, None, NOT_SAMPLED, b"wrong", SAMPLED]))
    spans = await traces.take_spans()
    assert offsets_of(spans) == [100, 104]
    assert [span.name for span in spans] == ["produce t"] * 2
    assert spans[0].context.trace_id.hex() == TRACE
    assert spans[0].span_id != spans[1].span_id
    assert spans[0].start_ns <= spans[0].end_ns
    assert dict(spans[0].attributes)["messaging.client.id"] == "c\\n"
    assert not traces.has_waiting.is_set()


@scenario(run_in_virtual_cluster, nodes=1)
async def test_batches_that_need_not_be_opened(cluster: VirtualCluster, /) -> None:
    await create_topic(cluster)
    traces = traces_of(cluster)
    append(cluster, traces, batch_of([None]))
    append(cluster, traces, batch_of([SAMPLED]), duplicate=True)
    append(cluster, traces, batch_of([SAMPLED] * 9, codec=Codec.ZSTD))
    assert not traces.has_waiting.is_set()
    deliver(traces, batch_of([SAMPLED] * 9, codec=Codec.ZSTD) + batch_of([None], base=9))
    assert await traces.take_spans() == []
    assert value_of(traces, BATCHES_DROPPED) == 0


@scenario(run_in_virtual_cluster, nodes=1)
async def test_compressed_batches_are_opened_if_the_setting_says_so(
    cluster: VirtualCluster, /
) -> None:
    await create_topic(cluster)
    traces = traces_of(cluster, opens_compressed=True)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        append(cluster, traces, batch_of([SAMPLED], codec=codec))
        append(cluster, traces, batch_of([None], codec=codec))
        deliver(traces, batch_of([SAMPLED], codec=codec))
    assert [span.name for span in await traces.take_spans()] == ["produce t", "deliver t"] * 4


@scenario(run_in_virtual_cluster, nodes=1)
async def test_a_delivery_has_spans_of_the_records_that_the_consumer_gets(
    cluster: VirtualCluster, /
) -> None:
    traces = traces_of(cluster)
    data = batch_of([SAMPLED] * 3) + batch_of([None, SAMPLED], base=3)
    # The last batch is incomplete: the consumer gets it with the next response.
    deliver(traces, data + batch_of([SAMPLED], base=5)[:-1], offset=2)
    spans = await traces.take_spans()
    assert offsets_of(spans) == [2, 4]
    assert {span.name for span in spans} == {"deliver t"}


@scenario(run_in_virtual_cluster, nodes=1)
async def test_the_ratio_chooses_traces(cluster: VirtualCluster, /) -> None:
    await create_topic(cluster)
    low = SAMPLED.replace(TRACE.encode(), b"1" * 16 + b"0" * 15 + b"1")
    traces = traces_of(cluster, ratio=0.1)
    append(cluster, traces, batch_of([SAMPLED, low]))
    assert offsets_of(await traces.take_spans()) == [101]


@scenario(run_in_virtual_cluster, nodes=1)
async def test_batches_that_exceed_limits_are_dropped(cluster: VirtualCluster, /) -> None:
    await create_topic(cluster)
    traces = traces_of(cluster)
    batch = batch_of([SAMPLED])
    for _ in range(record_traces.WAITING_MAX + 3):
        append(cluster, traces, batch)
    assert value_of(traces, BATCHES_DROPPED) == 3
    large = build_batch(
        [Record(0, 0, None, bytes(record_traces.SEARCHED_BYTES_MAX), (RecordHeader("a", b""),))]
    )
    append(cluster, traces, large)
    assert value_of(traces, BATCHES_DROPPED) == 4
    taken = 0
    while traces.has_waiting.is_set():
        taken += len(await traces.take_spans())
    assert taken == record_traces.WAITING_MAX


@scenario(run_in_virtual_cluster, nodes=1)
async def test_the_bytes_of_waiting_batches_are_limited(cluster: VirtualCluster, /) -> None:
    await create_topic(cluster)
    traces = traces_of(cluster)
    header = RecordHeader("traceparent", SAMPLED)
    batch = build_batch([Record(0, 0, None, bytes(900 << 10), (header,))])
    kept = record_traces.WAITING_BYTES_MAX // len(batch)
    for _ in range(kept + 2):
        append(cluster, traces, batch)
    assert value_of(traces, BATCHES_DROPPED) == 2
    assert len(await traces.take_spans()) == kept
    append(cluster, traces, batch)
    assert value_of(traces, BATCHES_DROPPED) == 2


@scenario(run_in_virtual_cluster, nodes=1)
async def test_spans_of_one_batch_are_limited(cluster: VirtualCluster, /) -> None:
    await create_topic(cluster)
    traces = traces_of(cluster)
    append(cluster, traces, batch_of([SAMPLED] * (record_traces.SPANS_PER_BATCH_MAX + 5)))
    assert len(await traces.take_spans()) == record_traces.SPANS_PER_BATCH_MAX
    assert value_of(traces, SPANS_DROPPED) == 5


@scenario(run_in_virtual_cluster, nodes=1)
async def test_batches_that_cannot_be_read_are_counted(cluster: VirtualCluster, /) -> None:
    traces = traces_of(cluster, opens_compressed=True)
    batch = bytearray(batch_of([SAMPLED] * 9, codec=Codec.ZSTD))
    batch[-20:] = bytes(20)
    deliver(traces, bytes(batch))
    deliver(traces, batch_of([SAMPLED]), error=OSError("no disk"))
    deliver(traces, bytes(100))
    deliver(traces, batch_of([SAMPLED]))
    assert len(await traces.take_spans()) == 1
    assert value_of(traces, BATCHES_DROPPED) == 3


@scenario(run_in_virtual_cluster, nodes=3)
async def test_a_replication_that_fails_has_a_span_with_its_error(
    cluster: VirtualCluster, /
) -> None:
    await cluster.test_client().create_topic("t", replication_factor=3)
    leader = None
    while leader is None:
        await asyncio.sleep(0.1)
        found = [node.broker.partitions.get("t", 0) for node in cluster.nodes().values()]
        leader = next((each for each in found if each is not None and each.leader), None)
    traces = traces_of(cluster)
    # Nothing was appended at this offset, so the wait ends with a timeout.
    result = AppendResult(Offset(5), Offset(6), -1, Offset(0), 0)
    traces.on_appended(
        leader, memoryview(batch_of([SAMPLED])), result, client_id=None, started_ns=1
    )
    assert not traces.has_waiting.is_set()
    await traces.has_waiting.wait()
    produced, replicated = await traces.take_spans()
    assert replicated.name == "replicate t"
    assert replicated.context.span_id == produced.span_id
    assert "committed" in replicated.error
