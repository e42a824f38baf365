"""What was fetched goes out in order; damage in the middle is told after what comes before it."""

import pytest

from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_collector import FetchCollector
from lograft.client.consuming.records import Decoders
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
        self.rooms = 0
        self.retries = 0
        self.collector = FetchCollector(
            self.subscription,
            Decoders(None, None),
            checks_crcs=True,
            on_room=self._on_room,
            on_retry=self._on_retry,
        )
        for state in self.subscription:
            state.seek(Position(0))

    def _on_room(self) -> None:
        self.rooms += 1

    def _on_retry(self) -> None:
        self.retries += 1

    def state(self, one: TopicPartition) -> PartitionState:
        return self.subscription.state(one)

    def fetched(
        self, one: TopicPartition, data: bytes, aborted: list[Aborted] | None = None
    ) -> None:
        state = self.state(one)
        state.fetched(CompletedFetch(Slice(*one, state.fetch_position.offset, data, aborted)))

    def offsets(self, count: int = 100) -> list[int]:
        polled = self.collector.take(count)
        return [record.offset for records in polled.values() for record in records]

    def rows(self) -> list[int]:
        batches = self.collector.take_columns(with_headers=False)
        return [offset for one in batches for offset in one.column("offset").to_pylist()]


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_few_at_a_time_over_batches_and_slices() -> None:
    bench = Bench(A)
    bench.fetched(A, batch(0, 3) + batch(3, 2))
    bench.fetched(A, batch(5, 4))
    assert bench.state(A).fetch_position == Position(9, 4)
    assert bench.offsets(2) == [0, 1]
    assert bench.state(A).position == Position(2, 4)
    assert bench.offsets(4) == [2, 3, 4, 5]
    assert bench.rooms == 1
    assert bench.offsets() == [6, 7, 8]
    assert not bench.state(A).slices


def test_those_who_were_given_go_to_the_end_of_the_line() -> None:
    bench = Bench(A, B)
    bench.fetched(A, batch(0, 4))
    bench.fetched(B, batch(0, 4))
    order = [next(iter(bench.collector.take(2))) for _ in range(4)]
    assert order == [A, B, A, B]


@pytest.mark.parametrize("as_columns", [False, True])
def test_damage_is_told_when_it_is_its_turn_and_can_be_skipped(as_columns: bool) -> None:
    bench = Bench(A, B)
    read = bench.rows if as_columns else bench.offsets
    bench.fetched(A, damaged(batch(0, 3)))
    bench.fetched(B, batch(0, 2))
    bench.subscription.rotate(bench.state(A))
    assert read() == [0, 1]
    for _ in range(2):
        if not bench.state(A).slices:
            bench.fetched(A, damaged(batch(0, 3)))
        with pytest.raises(BatchCorrupt, match="seek to 3"):
            read()
    # It is fetched again, in case it was damaged on the way.
    assert bench.retries == 3
    assert bench.state(A).fetch_position == Position(0)
    bench.state(A).seek(Position(3))
    bench.fetched(A, batch(3, 1))
    assert read() == [3]


def test_a_slice_with_nothing_to_see_moves_the_position() -> None:
    bench = Bench(A)
    bench.fetched(A, batch(0, 3, producer_id=9) + marker(3, 9), [Aborted(9, 0)])
    assert bench.offsets() == []
    assert bench.state(A).position == Position(4, 4)


def test_a_run_ends_when_the_program_pauses_or_seeks() -> None:
    bench = Bench(A)
    bench.fetched(A, batch(0, 5))
    assert bench.collector.begin_run(100)
    first = bench.collector.next_ready()
    assert first is not None
    assert first.offset == 0
    bench.state(A).is_paused = True
    assert bench.collector.next_ready() is None
    assert not bench.collector.begin_run(100)
    bench.state(A).is_paused = False
    assert bench.collector.begin_run(2)
    assert [one.offset for one in iter(bench.collector.next_ready, None) if one] == [1, 2]
    assert bench.collector.begin_run(2)
    bench.state(A).seek(Position(0))
    assert bench.collector.next_ready() is None


def test_errors_come_after_what_was_fetched_before_them_and_once() -> None:
    bench = Bench(A, B)
    bench.fetched(A, batch(0, 1))
    problem = ClientError("on purpose")
    for state in bench.subscription:
        state.error = problem
    assert bench.offsets() == [0]
    with pytest.raises(ClientError, match="on purpose"):
        bench.offsets()
    assert bench.retries == 1
    assert bench.offsets() == []
