"""Batches equal those of the plain encoder, and deliveries contain the outcome of each record."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.client.errors import ClientError, WrongUse
from lograft.client.producing.batches import Batch
from lograft.client.producing.deliveries import Deliveries, Delivery
from lograft.client.producing.record_parts import record_size_max
from lograft.wire.batches import HEADER_SIZE, Record, RecordHeader, build_batch
from lograft.wire.compression import Codec
from tests.support.scenarios import scenario

blobs = st.none() | st.binary(max_size=200)
records = st.tuples(
    st.integers(0, 1 << 41),
    blobs,
    blobs,
    st.lists(st.builds(RecordHeader, st.text(max_size=9), blobs), max_size=2).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=30), st.sampled_from(Codec))
@settings(deadline=None, max_examples=60)
def test_bytes_equal_those_of_plain_encoder(
    contents: list[tuple[int, bytes | None, bytes | None, tuple[RecordHeader, ...]]], codec: Codec
) -> None:
    async def build() -> tuple[Batch, bytearray]:
        batch = Batch("t", 0, 0, (0,))
        batch.is_transactional = True
        batch.set_producer(7, 3, 11)
        for timestamp, key, value, headers in contents:
            before = batch.size_bytes
            batch.append(timestamp, key, value, headers)
            assert batch.size_bytes - before <= record_size_max(key, value, headers)
        return batch, batch.data(codec, None)

    batch, data = asyncio.run(build())
    plain = [Record(i, *fields) for i, fields in enumerate(contents)]
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
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 70), max_size=90)),
        min_size=1,
        max_size=5,
    ),
    st.integers(100, 3_000),
)
@settings(deadline=None, max_examples=60)
@scenario()
async def test_extend_encodes_like_append(runs: list[tuple[int, list[int]]], limit: int) -> None:
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
async def test_extend_stops_at_value_that_is_not_bytes() -> None:
    batch = Batch("t", 0, 0, (0,), 1_000)
    mixed: list[Any] = [b"a", b"b", "text", b"c"]
    assert batch.extend(1, mixed, 0) == 2
    assert batch.extend(1, mixed, 3) == 4
    assert [record.value for record in batch.records()] == [b"a", b"b", b"c"]


@scenario()
async def test_outcomes_contain_timestamps_and_offsets() -> None:
    batch = Batch("t", 0, 0, (0,), 1_000)
    for time in (5, 5, 9, 3, 3):
        batch.append(time, None, b"v")
    batch.acknowledge(10)
    outcomes = [batch.outcome(index, -1) for index in range(5)]
    assert [outcome.timestamp_ms for outcome in outcomes] == [5, 5, 9, 3, 3]
    assert [outcome.offset for outcome in outcomes] == [10, 11, 12, 13, 14]


@scenario()
async def test_deliveries_are_a_sequence() -> None:
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
    offsets = [(outcome.partition, outcome.offset) for outcome in await deliveries]
    assert offsets == [(0, 101), (0, 102), (1, 7)]
    assert [delivery.result().offset for delivery in deliveries[1:]] == [102, 7]
    assert deliveries[-1].result().offset == 7
    with pytest.raises(IndexError):
        deliveries[3]


@scenario()
async def test_new_producer_id_changes_the_bytes() -> None:
    batch = Batch("t", 0, 0, (0,))
    batch.append(5, None, b"v")
    first = batch.data(Codec.NONE, None)
    assert batch.data(Codec.NONE, None) is first
    batch.set_producer(1, 2, 3)
    assert batch.data(Codec.NONE, None) != first
    assert len(first) > HEADER_SIZE


@scenario()
async def test_deliveries_contain_outcomes_after_a_split() -> None:
    whole = Batch("t", 3, 0, (0,))
    deliveries = []
    for i in range(3):
        whole.append(100 + i, None, b"v")
        deliveries.append(Delivery(whole, i, -1))
    with pytest.raises(WrongUse, match="still pending"):
        deliveries[0].result()
    done: list[Delivery] = []
    deliveries[2].add_done_callback(done.append)
    children = [Batch("t", 3, 0, (0, 0)), Batch("t", 3, 0, (0, 1))]
    for child, count in zip(children, (1, 2), strict=True):
        for i in range(count):
            child.append(500 + i, None, b"v")
    whole.replace(children)
    children[0].acknowledge(40)
    assert not done
    children[1].fail(ClientError("no"))
    assert done == [deliveries[2]]
    first = await deliveries[0]
    assert (first.offset, first.partition, first.timestamp_ms) == (40, 3, 500)
    for delivery in deliveries[1:]:
        with pytest.raises(ClientError, match="no"):
            await delivery
