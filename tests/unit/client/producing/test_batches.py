"""Batches are what the plain writer writes; deliveries tell each record's fate."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.errors import ClientError, WrongUse
from lograft.client.producing.batches import Batch
from lograft.client.producing.deliveries import Deliveries, Delivery
from lograft.client.producing.record_parts import record_size_max
from lograft.wire.batches import HEADER_SIZE, Record, RecordHeader, build_batch
from lograft.wire.compression import Codec
from tests.support.scenarios import scenario

blobs = some.none() | some.binary(max_size=200)
records = some.tuples(
    some.integers(0, 1 << 41),
    blobs,
    blobs,
    some.lists(some.builds(RecordHeader, some.text(max_size=9), blobs), max_size=2).map(tuple),
)


@given(some.lists(records, min_size=1, max_size=30), some.sampled_from(Codec))
@settings(deadline=None, max_examples=60)
def test_bytes_are_those_of_the_plain_writer(
    given: list[tuple[int, bytes | None, bytes | None, tuple[RecordHeader, ...]]], codec: Codec
) -> None:
    async def built() -> tuple[Batch, bytearray]:
        batch = Batch("t", 0, 0, (0,))
        batch.is_transactional = True
        batch.identify(7, 3, 11)
        for timestamp, key, value, headers in given:
            before = batch.size_bytes
            batch.append(timestamp, key, value, headers)
            assert batch.size_bytes - before <= record_size_max(key, value, headers)
        return batch, batch.data(codec, None)

    batch, data = asyncio.run(built())
    plain = [Record(i, *one) for i, one in enumerate(given)]
    assert data == build_batch(
        plain,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        compression=codec,
        transactional=True,
    )
    assert batch.records() == plain


@given(
    some.lists(
        some.tuples(some.integers(0, 3), some.lists(some.integers(0, 70), max_size=90)),
        min_size=1,
        max_size=5,
    ),
    some.integers(100, 3_000),
)
@settings(deadline=None, max_examples=60)
@scenario()
async def test_values_that_come_together_are_written_like_single_ones(
    runs: list[tuple[int, list[int]]], limit: int
) -> None:
    together, single = Batch("t", 0, 0, (0,), limit), Batch("t", 0, 0, (0,))
    for time, sizes in runs:
        values = [b"v" * size for size in sizes]
        end = together.extend(100 + time, values, 0)
        for value in values[:end]:
            single.append(100 + time, None, value)
        assert together.size_bytes <= limit
        if end < len(values):
            assert together.size_bytes + record_size_max(None, values[end], ()) > limit
            break
    if together.count:
        assert together.count == single.count
        assert together.data(Codec.NONE, None) == single.data(Codec.NONE, None)


@scenario()
async def test_what_is_not_bytes_stops_a_run() -> None:
    batch = Batch("t", 0, 0, (0,), 1_000)
    mixed: list[Any] = [b"a", b"b", "text", b"c"]
    assert batch.extend(1, mixed, 0) == 2
    assert batch.extend(1, mixed, 3) == 4
    assert [one.value for one in batch.records()] == [b"a", b"b", b"c"]


@scenario()
async def test_times_are_told_by_place() -> None:
    batch = Batch("t", 0, 0, (0,), 1_000)
    for time in (5, 5, 9, 3, 3):
        batch.append(time, None, b"v")
    batch.acknowledge(10)
    told = [batch.outcome(index, -1) for index in range(5)]
    assert [one.timestamp_ms for one in told] == [5, 5, 9, 3, 3]
    assert [one.offset for one in told] == [10, 11, 12, 13, 14]


@scenario()
async def test_deliveries_are_a_sequence_made_as_it_is_read() -> None:
    first, second = Batch("t", 0, 0, (0,), 1_000), Batch("t", 1, 0, (1,), 1_000)
    first.extend(1, [b"a", b"b", b"c"], 0)
    second.extend(1, [b"d"], 0)
    deliveries = Deliveries(-1)
    deliveries.add(first, 1, 2)
    deliveries.add(second, 0, 1)
    assert len(deliveries) == 3
    assert not deliveries.done()
    first.acknowledge(100)
    second.acknowledge(7)
    places = [(one.partition, one.offset) for one in await deliveries]
    assert places == [(0, 101), (0, 102), (1, 7)]
    assert [one.result().offset for one in deliveries[1:]] == [102, 7]
    assert deliveries[-1].result().offset == 7
    with pytest.raises(IndexError):
        deliveries[3]


@scenario()
async def test_a_new_identity_changes_the_bytes() -> None:
    batch = Batch("t", 0, 0, (0,))
    batch.append(5, None, b"v")
    first = batch.data(Codec.NONE, None)
    assert batch.data(Codec.NONE, None) is first
    batch.identify(1, 2, 3)
    assert batch.data(Codec.NONE, None) != first
    assert len(first) > HEADER_SIZE


@scenario()
async def test_deliveries_tell_the_fate_of_their_records_also_after_a_split() -> None:
    whole = Batch("t", 3, 0, (0,))
    deliveries = []
    for i in range(3):
        whole.append(100 + i, None, b"v")
        deliveries.append(Delivery(whole, i, -1))
    with pytest.raises(WrongUse, match="still pending"):
        deliveries[0].result()
    told: list[Delivery] = []
    deliveries[2].add_done_callback(told.append)
    children = [Batch("t", 3, 0, (0, 0)), Batch("t", 3, 0, (0, 1))]
    for child, count in zip(children, (1, 2), strict=True):
        for i in range(count):
            child.append(500 + i, None, b"v")
    whole.replace(children)
    children[0].acknowledge(40)
    assert not told
    children[1].fail(ClientError("no"))
    assert told == [deliveries[2]]
    first = await deliveries[0]
    assert (first.offset, first.partition, first.timestamp_ms) == (40, 3, 500)
    for delivery in deliveries[1:]:
        with pytest.raises(ClientError, match="no"):
            await delivery
