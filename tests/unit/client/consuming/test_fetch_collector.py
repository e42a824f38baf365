"""Fetched records are returned in order; corruption is raised after the records before it."""

import pytest

from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_collector import FetchCollector
from lograft.client.consuming.fetch_metrics import FetchMetrics
from lograft.client.consuming.records import RecordDeserializer
from lograft.client.consuming.slices import Aborted, BatchCorrupt, Slice
from lograft.client.consuming.subscription import PartitionState, Position, Subscription
from lograft.client.errors import ClientError
from lograft.client.types import TopicPartition
from lograft.wire.batches import Record, build_batch

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def batch(first: int, count: int, *, producer_id: int = -1) -> bytes:
    records = [Record(first + i, 0, None, b"%d" % (first + i)) for i in range(count)]
    return build_batch(
        records, leader_epoch=4, producer_id=producer_id, transactional=producer_id >= 0
    )


def marker(offset: int, producer_id: int) -> bytes:
    key = bytes(4)
    return build_batch(
        [Record(offset, 0, key, bytes(6))],
        producer_id=producer_id,
        transactional=True,
        control=True,
        leader_epoch=4,
    )


class Bench:
    def __init__(self, *partitions: TopicPartition) -> None:
        self.subscription = Subscription()
        self.subscription.assign(partitions)
        self.consumed_slices = 0
        self.raised_errors = 0
        self.collector = FetchCollector(
            self.subscription,
            RecordDeserializer(None, None),
            checks_crcs=True,
            metrics=FetchMetrics(self.subscription, is_read_committed=False),
            on_slice_consumed=self._on_slice_consumed,
            on_error_raised=self._on_error_raised,
        )
        for state in self.subscription:
            state.seek(Position(0))

    def _on_slice_consumed(self) -> None:
        self.consumed_slices += 1

    def _on_error_raised(self) -> None:
        self.raised_errors += 1

    def state(self, partition: TopicPartition) -> PartitionState:
        return self.subscription.state(partition)

    def add_slice(
        self, partition: TopicPartition, data: bytes, aborted: list[Aborted] | None = None
    ) -> None:
        state = self.state(partition)
        fetched = Slice(*partition, state.fetch_position.offset, data, aborted)
        state.add_slice(CompletedFetch(fetched))

    def offsets(self, count: int = 100) -> list[int]:
        polled = self.collector.collect(count)
        return [record.offset for records in polled.values() for record in records]

    def rows(self) -> list[int]:
        batches = self.collector.collect_arrow(with_headers=False)
        return [offset for rows in batches for offset in rows.column("offset").to_pylist()]


def corrupt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_collect_returns_a_few_records_at_a_time_across_batches_and_slices() -> None:
    bench = Bench(A)
    bench.add_slice(A, batch(0, 3) + batch(3, 2))
    bench.add_slice(A, batch(5, 4))
    assert bench.state(A).fetch_position == Position(9, 4)
    assert bench.offsets(2) == [0, 1]
    assert bench.state(A).position == Position(2, 4)
    assert bench.offsets(4) == [2, 3, 4, 5]
    assert bench.consumed_slices == 1
    assert bench.offsets() == [6, 7, 8]
    assert not bench.state(A).slices


def test_partitions_take_turns() -> None:
    bench = Bench(A, B)
    bench.add_slice(A, batch(0, 4))
    bench.add_slice(B, batch(0, 4))
    order = [next(iter(bench.collector.collect(2))) for _ in range(4)]
    assert order == [A, B, A, B]


@pytest.mark.parametrize("as_columns", [False, True])
def test_a_corrupt_batch_raises_after_earlier_records_and_can_be_skipped(
    as_columns: bool,
) -> None:
    bench = Bench(A, B)
    read = bench.rows if as_columns else bench.offsets
    bench.add_slice(A, corrupt(batch(0, 3)))
    bench.add_slice(B, batch(0, 2))
    bench.subscription.rotate(bench.state(A))
    assert read() == [0, 1]
    for _ in range(2):
        if not bench.state(A).slices:
            bench.add_slice(A, corrupt(batch(0, 3)))
        with pytest.raises(BatchCorrupt, match="seek to 3"):
            read()
    # It is fetched again, in case it was corrupted in transit.
    assert bench.raised_errors == 3
    assert bench.state(A).fetch_position == Position(0)
    bench.state(A).seek(Position(3))
    bench.add_slice(A, batch(3, 1))
    assert read() == [3]


def test_a_slice_without_visible_records_advances_the_position() -> None:
    bench = Bench(A)
    bench.add_slice(A, batch(0, 3, producer_id=9) + marker(3, 9), [Aborted(9, 0)])
    assert bench.offsets() == []
    assert bench.state(A).position == Position(4, 4)


def test_a_run_ends_when_the_application_pauses_or_seeks() -> None:
    bench = Bench(A)
    bench.add_slice(A, batch(0, 5))
    assert bench.collector.start_run(100)
    first = bench.collector.next_record()
    assert first is not None
    assert first.offset == 0
    bench.state(A).is_paused = True
    assert bench.collector.next_record() is None
    assert not bench.collector.start_run(100)
    bench.state(A).is_paused = False
    assert bench.collector.start_run(2)
    assert [record.offset for record in iter(bench.collector.next_record, None) if record] == [1, 2]
    assert bench.collector.start_run(2)
    bench.state(A).seek(Position(0))
    assert bench.collector.next_record() is None


def test_an_error_is_raised_once_after_the_records_before_it() -> None:
    bench = Bench(A, B)
    bench.add_slice(A, batch(0, 1))
    error = ClientError("on purpose")
    for state in bench.subscription:
        state.error = error
    assert bench.offsets() == [0]
    with pytest.raises(ClientError, match="on purpose"):
        bench.offsets()
    assert bench.raised_errors == 1
    assert bench.offsets() == []
