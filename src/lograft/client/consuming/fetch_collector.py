"""Returns fetched records to the application, one partition after another, and advances the
positions.

A position advances when its record is returned to the application, never before, so that a commit
covers exactly what the application has consumed. An error in the middle of a slice is raised after
everything before it has been returned.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.fetch_metrics import FetchMetrics
from lograft.client.consuming.records import RecordDeserializer
from lograft.client.consuming.subscription import PartitionState, Position, Subscription
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.model.errors import LograftError

if TYPE_CHECKING:
    import pyarrow as pa

Polled = dict[TopicPartition, list[ConsumerRecord]]


class FetchCollector:
    def __init__(
        self,
        subscription: Subscription,
        deserializer: RecordDeserializer,
        *,
        checks_crcs: bool,
        metrics: FetchMetrics,
        on_slice_consumed: Callable[[], None],
        on_error_raised: Callable[[], None],
    ) -> None:
        """`on_slice_consumed`: the next slice may be fetched; `on_error_raised`: what failed may be
        retried."""
        self._subscription = subscription
        self._deserializer = deserializer
        self._returns_bytes = deserializer.returns_bytes
        self._checks_crcs = checks_crcs
        self._on_slice_consumed = on_slice_consumed
        self._on_error_raised = on_error_raised
        #: The slice that `next_record` reads, and how many of its records may still be returned.
        self._run: tuple[PartitionState, CompletedFetch] | None = None
        self._run_left = 0
        #: The records of the run that are not counted in the metrics yet.
        self._run_uncounted = 0
        self._metrics = metrics
        metrics.settle = self._count_run

    def collect(self, count: int) -> Polled:
        """Returns up to `count` records. If there are none, raises the error of a partition."""
        polled: Polled = {}
        for state, fetched in self._readable(polled):
            try:
                records = self._take_from(state, fetched, count)
            except LograftError:
                if polled:
                    break  # The next call raises it.
                raise
            polled.setdefault(state.partition, []).extend(records)
            count -= len(records)
            if not count:
                # The next call starts with another partition.
                self._subscription.rotate(state)
                break
        if not polled:
            self._raise_error()
        return polled

    def start_run(self, count: int) -> bool:
        """Selects the slice whose next `count` records `next_record` returns. False: none is
        buffered."""
        self._count_run()
        for state, fetched in self._readable({}):
            self._run = state, fetched
            self._run_uncounted = self._run_left = min(
                count, len(fetched.records) - fetched.consumed
            )
            self._subscription.rotate(state)
            return True
        self._raise_error()
        return False

    def next_record(self) -> ConsumerRecord | None:
        """Returns the next record of the run; None at its end, or if the application has paused the
        partition, sought, or consumed the slice by another call."""
        if not self._run_left or self._run is None:
            return None
        state, fetched = self._run
        consumed = fetched.consumed
        if (
            state.is_paused
            or not state.slices
            or state.slices[0] is not fetched
            or consumed == len(fetched.records)
        ):
            self._run_left = 0
            return None
        record = fetched.records[consumed]
        if not self._returns_bytes:
            record = self._deserializer.deserialize(record)
        fetched.consumed = consumed + 1
        self._run_left -= 1
        state.position = tuple.__new__(Position, (record[2] + 1, record[7]))
        return record

    def collect_arrow(self, *, with_headers: bool) -> "list[pa.RecordBatch]":
        """Returns all buffered records, one Arrow batch for each slice."""
        from lograft.client.columns.decoder import decode

        columns: list[pa.RecordBatch] = []
        for state in list(self._subscription):
            if state.is_paused or state.is_held:
                continue
            while state.slices:
                rest = state.slices[0].slice.read_from(state.position.offset)
                try:
                    batch = decode(rest, with_headers=with_headers, checks_crcs=self._checks_crcs)
                except LograftError:
                    state.drop_slices()
                    self._on_error_raised()
                    if columns:
                        return columns
                    raise
                fetched = state.slices[0]
                if batch.num_rows:
                    columns.append(batch)
                    self._count_slice(state, fetched)
                self._finish(state)
                self._metrics.on_records(state, batch.num_rows)
        if not columns:
            self._raise_error()
        return columns

    def _readable(self, polled: Polled) -> Iterator[tuple[PartitionState, CompletedFetch]]:
        """Yields the slices that have records left, and removes the others."""
        for state in list(self._subscription):
            if state.is_paused or state.is_held:
                continue
            while state.slices:
                fetched = state.slices[0]
                try:
                    has_more = fetched.has_more(checks_crcs=self._checks_crcs)
                except LograftError:
                    state.drop_slices()
                    self._on_error_raised()
                    if polled:
                        return
                    raise
                if has_more:
                    self._count_slice(state, fetched)
                    yield state, fetched
                else:
                    self._finish(state)

    def _take_from(
        self, state: PartitionState, fetched: CompletedFetch, count: int
    ) -> list[ConsumerRecord]:
        """Takes at least one record. Raises SerializationFailed if the first one cannot be
        deserialized."""
        records = fetched.records[fetched.consumed : fetched.consumed + count]
        if not self._returns_bytes:
            records = self._deserialize(records)
        fetched.consumed += len(records)
        last = records[-1]
        state.position = Position(last.offset + 1, last.leader_epoch)
        self._metrics.on_records(state, len(records))
        return records

    def _deserialize(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Stops before the first record that cannot be deserialized, unless it is the first."""
        deserialized: list[ConsumerRecord] = []
        for record in records:
            try:
                deserialized.append(self._deserializer.deserialize(record))
            except LograftError:
                if deserialized:
                    break
                raise
        return deserialized

    def _count_slice(self, state: PartitionState, fetched: CompletedFetch) -> None:
        if not fetched.is_read:
            fetched.is_read = True
            self._metrics.on_slice_read(state.partition.topic, fetched.size_bytes)

    def _count_run(self) -> None:
        """Counts the records that `next_record` has returned since the last call. It does not count
        them itself, because it is called for each record."""
        count = self._run_uncounted - self._run_left
        if count and self._run is not None:
            self._metrics.on_records(self._run[0], count)
        self._run_uncounted = self._run_left

    def _finish(self, state: PartitionState) -> None:
        finished = state.slices.popleft()
        state.position = Position(finished.next_offset, finished.last_epoch)
        self._on_slice_consumed()

    def _raise_error(self) -> None:
        """Raises the error of a partition that has nothing buffered. It is raised once; then the
        failed operation is retried."""
        for state in self._subscription:
            error = state.error
            if error is not None and not state.slices:
                for other in self._subscription:
                    if other.error is error:
                        other.error = None
                self._on_error_raised()
                raise error
