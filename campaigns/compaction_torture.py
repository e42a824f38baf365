"""Torture test of a compacted log (D11): crashes before, during and after a cleaning pass.

Compaction may remove a record only if a later record of its key is permanent, if its transaction
was aborted, or if it is an expired tombstone. After any crash, the last committed value of each key
below the recovered end must exist, byte for byte."""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from campaigns.storage_checks import read_all
from campaigns.storage_model import UNPACKED_BYTES_MAX, ModelLog, Replay
from campaigns.storage_torture import (
    LIVES,
    PARTITION,
    ROOT,
    STEPS,
    Torture,
    TortureReport,
)
from campaigns.storage_workload import BatchMaker
from lograft.model.types import Offset
from lograft.simulation.errors import InvariantViolated
from lograft.storage import log_dirs
from lograft.storage.cleaner import Cleaning, find_cleanable
from lograft.storage.types import FixedLogConfig
from lograft.wire.batches import read_records

TOMBSTONE_CHANCE: Final = 0.2
CLEANER_OFFSETS: Final = f"{ROOT}/{log_dirs.CLEANER_OFFSETS}"


class Entry(NamedTuple):
    key: bytes | None
    value: bytes | None
    #: Whether its transaction was aborted.
    is_aborted: bool


def draw_compact_config(random: Random) -> FixedLogConfig:
    return FixedLogConfig(
        segment_bytes=random.choice((3_200, 4_000, 8_000)),
        segment_ms=random.choice((3_000, 604_800_000)),
        index_interval_bytes=random.choice((0, 100)),
        retention_ms=-1,
        cleanup_compact=True,
        cleanup_delete=False,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=random.choice((0, 1 << 50)),
        file_delete_delay_ms=random.choice((0, 1_000)),
    )


class CompactionTorture(Torture):
    def __init__(self, seed: int, *, lives: int = LIVES, steps: int = STEPS) -> None:
        #: No cleaning pass has processed offsets at or above this one.
        self.cleaned_upto = 0
        self._first_dirty = Offset(0)
        self._cleaning: Cleaning | None = None
        super().__init__(seed, lives=lives, steps=steps)

    def _draw_config(self) -> FixedLogConfig:
        return draw_compact_config(self._random)

    def _new_maker(self) -> BatchMaker:
        return BatchMaker(self._random, tombstone_chance=TOMBSTONE_CHANCE)

    def _steps_by_weight(self) -> tuple[tuple[Callable[[], None], int], ...]:
        return (
            (self._append, 40), (self._append_as_follower, 10), (self._roll, 5),
            (self._make_plan, 4), (self._run_plan, 6), (self._mark_durable, 5),
            (self._checkpoint, 4), (self._clean, 8), (self._swap_in, 8),
            (self._remove_files, 4), (self._new_epoch, 2), (self._compare, 4),
        )  # fmt: skip

    # -- cleaning ----------------------------------------------------------------------------------

    def _clean(self) -> None:
        """Runs the worker's part of a cleaning pass."""
        if self._cleaning is not None:
            return
        cleanable = find_cleanable(
            self.log,
            first_dirty=self._first_dirty,
            now_ms=self.now_ms,
            high_watermark=self.log.end_offset,
        )
        if cleanable is None:
            return
        self.trace.event("clean", cleanable.first_dirty, cleanable.upto)
        self.cleaned_upto = max(self.cleaned_upto, cleanable.upto)
        cleaning = Cleaning(self.log, cleanable, now_ms=self.now_ms)
        cleaning.run()
        self._cleaning = cleaning

    def _swap_in(self) -> None:
        cleaning, self._cleaning = self._cleaning, None
        if cleaning is not None and cleaning.swap_in(self.log):
            self._first_dirty = cleaning.first_dirty
            if self._random.random() < 0.5:
                offsets = {PARTITION: int(self._first_dirty)}
                log_dirs.write_checkpoint(self.disk, CLEANER_OFFSETS, offsets)

    def _end_life(self, *, power: bool) -> None:
        self._cleaning = None
        super()._end_life(power=power)

    # -- checks ------------------------------------------------------------------------------------

    def _compare(self) -> None:
        self._check_contents(self.model)

    def _compare_after_restart(self, *, is_lossy: bool) -> None:
        log = self.log
        self.trace.event("recovered", log.log_start_offset, log.end_offset, log.durable_offset)
        candidates = [*self.alternatives, self.model]
        required = self.floor if is_lossy else min(each.end for each in candidates)
        if log.end_offset < required:
            raise InvariantViolated("D9", f"recovered to {log.end_offset}, {required} was durable")
        line = next(
            (each for each in candidates if each.truncate(log.end_offset).end == log.end_offset),
            None,
        )
        if line is None:
            raise InvariantViolated("D2", f"the log ends at {log.end_offset}, within a batch")
        self.alternatives = []
        self.model = line.truncate(log.end_offset)
        before, self.replay = self.replay, Replay.of(self.model.batches)
        self._accept_forgotten_producers(before)
        stored = log_dirs.read_checkpoint(self.disk, CLEANER_OFFSETS)
        self._first_dirty = Offset(stored.get(PARTITION, Offset(0)))
        self._check_durable_offset()
        self._check_contents(self.model)

    def _accept_forgotten_producers(self, before: Replay) -> None:
        """A pass keeps a producer's last batch. If a power loss destroys this batch, the producer
        may be forgotten, as in Kafka; it then starts a new epoch."""
        for producer_id, producer in self.replay.producers.items():
            known = before.producers.get(producer_id)
            if known is None or known.batches[-1:] != producer.batches[-1:]:
                producer.batches.clear()

    def _check_contents(self, model: ModelLog) -> None:
        found: dict[int, Entry] = {}
        for _, data in read_all(self.log, self._random):
            for record in read_records(data, bytes_max=UNPACKED_BYTES_MAX):
                found[record.offset] = Entry(record.key, record.value, False)
        expected = self._entries(model)
        latest: dict[bytes | None, int] = {}
        for offset, entry in expected.items():
            if not entry.is_aborted and offset < self.cleaned_upto:
                latest[entry.key] = offset
        for offset, entry in expected.items():
            actual = found.get(offset)
            if actual is None:
                self._check_missing(offset, entry, latest)
            elif actual[:2] != entry[:2]:
                raise InvariantViolated("D2", f"offset {offset} has a different record")
        self._check_producers()

    def _entries(self, model: ModelLog) -> dict[int, Entry]:
        """Returns every data record, and whether it was aborted."""
        entries: dict[int, Entry] = {}
        aborted = self.replay.aborted
        for batch in model.batches:
            if batch.marker is not None:
                continue
            is_aborted = batch.is_transactional and any(
                each.producer_id == batch.producer_id
                and each.first_offset <= batch.base_offset < each.last_offset
                for each in aborted
            )
            for record in read_records(batch.data, bytes_max=UNPACKED_BYTES_MAX):
                entries[record.offset] = Entry(record.key, record.value, is_aborted)
        return entries

    def _check_missing(self, offset: int, entry: Entry, latest: dict[bytes | None, int]) -> None:
        if offset >= self.cleaned_upto:
            raise InvariantViolated("D11", f"{offset} is missing, but no pass reached it")
        if entry.is_aborted or latest.get(entry.key, -1) > offset:
            return
        if entry.value is None and self.config.delete_retention_ms == 0:
            return
        raise InvariantViolated(
            "D11", f"{offset}, the last record of key {entry.key!r}, is missing"
        )

    def _check_producers(self) -> None:
        for producer_id, expected in self.replay.producers.items():
            if not expected.batches:
                continue
            producer = self.log.producers.get(producer_id)
            last = producer.last_sequence + 1 if producer is not None else None
            if last != expected.next_sequence:
                raise InvariantViolated(
                    "P3",
                    f"producer {producer_id}: next sequence {last}, not {expected.next_sequence}",
                )
        indexed = {
            (each.producer_id, each.last_offset)
            for each in self.log.aborted_transactions(0, self.log.end_offset)
        }
        readable = {base for base, _ in read_all(self.log, self._random)}
        for each in self.replay.aborted:
            is_visible = any(
                batch.producer_id == each.producer_id
                and batch.marker is None
                and each.first_offset <= batch.base_offset < each.last_offset
                and batch.base_offset in readable
                and self._has_records(batch.base_offset)
                for batch in self.model.batches
            )
            if is_visible and (each.producer_id, each.last_offset) not in indexed:
                raise InvariantViolated("D11", f"aborted {each} is readable as committed")

    def _has_records(self, offset: int) -> bool:
        found = self.log.read(offset, bytes_max=1)
        if found is None:
            return False
        data = found.file.pread(found.size, found.position)
        return bool(read_records(data, bytes_max=UNPACKED_BYTES_MAX))


def torture_compaction(seed: int, *, lives: int = LIVES, steps: int = STEPS) -> TortureReport:
    return CompactionTorture(seed, lives=lives, steps=steps).run()
