"""Hands what was fetched to the program, partition after partition, and moves the positions along.

A position moves when its record is handed out, never before: what is committed is what the program
has got. An error in the middle is raised when everything before it has been handed out.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.records import Decoders
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
        decoders: Decoders,
        *,
        checks_crcs: bool,
        on_room: Callable[[], None],
        on_retry: Callable[[], None],
    ) -> None:
        """`on_room`: a slice has been used up, so that the next one may be fetched; `on_retry`: an
        error is told, so that what failed may be tried again."""
        self._subscription = subscription
        self._decoders = decoders
        self._are_plain = decoders.are_plain
        self._checks_crcs = checks_crcs
        self._on_room = on_room
        self._on_retry = on_retry
        #: What `next_ready` gives from, and how many records it may still give of it.
        self._run: tuple[PartitionState, CompletedFetch] | None = None
        self._run_left = 0

    def take(self, count: int) -> Polled:
        """Up to so many records. Raises what is wrong with the first, or with a partition."""
        polled: Polled = {}
        for state, fetched in self._readable(polled):
            try:
                records = self._take_from(state, fetched, count)
            except LograftError:
                if polled:
                    break  # It comes again, as the first.
                raise
            polled.setdefault(state.partition, []).extend(records)
            count -= len(records)
            if not count:
                # Others come first the next time.
                self._subscription.rotate(state)
                break
        if not polled:
            self._raise_error()
        return polled

    def begin_run(self, count: int) -> bool:
        """Whether `next_ready` has something to give: up to so many records of one slice."""
        for state, fetched in self._readable({}):
            self._run = state, fetched
            self._run_left = min(count, len(fetched.records) - fetched.given)
            self._subscription.rotate(state)
            return True
        self._raise_error()
        return False

    def next_ready(self) -> ConsumerRecord | None:
        """The next record of the run, unless the program has paused, sought or gone elsewhere."""
        if not self._run_left or self._run is None:
            return None
        state, fetched = self._run
        given = fetched.given
        if (
            state.is_paused
            or not state.slices
            or state.slices[0] is not fetched
            or given == len(fetched.records)
        ):
            self._run_left = 0
            return None
        record = fetched.records[given]
        if not self._are_plain:
            record = self._decoders.decoded(record)
        fetched.given = given + 1
        self._run_left -= 1
        state.position = tuple.__new__(Position, (record[2] + 1, record[7]))
        return record

    def take_columns(self, *, with_headers: bool) -> "list[pa.RecordBatch]":
        """All that lies ready, a batch for each slice."""
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
                    self._on_retry()
                    if columns:
                        return columns
                    raise
                if batch.num_rows:
                    columns.append(batch)
                self._finish(state)
        if not columns:
            self._raise_error()
        return columns

    def _readable(self, polled: Polled) -> Iterator[tuple[PartitionState, CompletedFetch]]:
        """Slices that have records to give; those that are used up go."""
        for state in list(self._subscription):
            if state.is_paused or state.is_held:
                continue
            while state.slices:
                fetched = state.slices[0]
                try:
                    has_more = fetched.has_more(checks_crcs=self._checks_crcs)
                except LograftError:
                    state.drop_slices()
                    self._on_retry()
                    if polled:
                        return
                    raise
                if has_more:
                    yield state, fetched
                else:
                    self._finish(state)

    def _take_from(
        self, state: PartitionState, fetched: CompletedFetch, count: int
    ) -> list[ConsumerRecord]:
        """At least one. Raises SerializationFailed if not even one can be had."""
        records = fetched.records[fetched.given : fetched.given + count]
        if not self._are_plain:
            records = self._decoded(records)
        fetched.given += len(records)
        last = records[-1]
        state.position = Position(last.offset + 1, last.leader_epoch)
        return records

    def _decoded(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        decoded: list[ConsumerRecord] = []
        for record in records:
            try:
                decoded.append(self._decoders.decoded(record))
            except LograftError:
                if decoded:
                    break
                raise
        return decoded

    def _finish(self, state: PartitionState) -> None:
        used = state.slices.popleft()
        state.position = Position(used.next_offset, used.last_epoch)
        self._on_room()

    def _raise_error(self) -> None:
        """What stands in the way of a partition, once; then it is tried again."""
        for state in self._subscription:
            error = state.error
            if error is not None and not state.slices:
                for other in self._subscription:
                    if other.error is error:
                        other.error = None
                self._on_retry()
                raise error
