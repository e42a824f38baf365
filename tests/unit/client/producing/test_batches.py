"""Batches are what the plain writer writes; deliveries tell each record's fate."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lograft.client.errors import ClientError, WrongUse
from lograft.client.producing.batches import Batch, Delivery, record_size_max
from lograft.wire.batches import HEADER_SIZE, Record, RecordHeader, build_batch
from lograft.wire.compression import Codec

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
    async def built() -> tuple[Batch, bytes]:
        batch = Batch("t", 0, 0, (0,))
        batch.is_transactional = True
        batch.identify(7, 3, 11)
        for timestamp, key, value, headers in given:
            size = batch.append(timestamp, key, value, headers)
            assert size <= record_size_max(key, value, headers)
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


def test_a_new_identity_changes_the_bytes() -> None:
    async def scenario() -> None:
        batch = Batch("t", 0, 0, (0,))
        batch.append(5, None, b"v")
        first = batch.data(Codec.none, None)
        assert batch.data(Codec.none, None) is first
        batch.identify(1, 2, 3)
        assert batch.data(Codec.none, None) != first
        assert len(first) > HEADER_SIZE

    asyncio.run(scenario())


def test_deliveries_tell_the_fate_of_their_records_also_after_a_split() -> None:
    async def scenario() -> None:
        whole = Batch("t", 3, 0, (0,))
        deliveries = []
        for i in range(3):
            whole.append(100 + i, None, b"v")
            deliveries.append(Delivery(whole, i, -1))
        with pytest.raises(WrongUse, match="still on its way"):
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

    asyncio.run(scenario())
