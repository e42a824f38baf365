"""Compares the log with a list: random operations with stops of every kind, and the same records
afterwards."""

import random
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lograft.model.types import Offset
from lograft.simulation.errors import SimulatedCrash
from lograft.storage.log import Log
from lograft.storage.markers import read_marker
from lograft.storage.producers import UNVERIFIED, ProducerBatch, ProducerStates
from lograft.storage.types import AbortedTransaction, FixedLogConfig, Origin
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import iterate_headers
from tests.unit.storage.logs import (
    NOW_MS,
    flush,
    make_batch,
    make_disk,
    make_marker,
    open_log,
    read_all,
)

CONFIG = FixedLogConfig(
    segment_bytes=600, index_interval_bytes=100, retention_ms=1000, file_delete_delay_ms=0
)


@dataclass(frozen=True)
class Entry:
    """A batch in the model."""

    base: int
    values: tuple[bytes, ...]
    epoch: int
    timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: memoryview | None = None

    @property
    def end(self) -> int:
        return self.base + len(self.values)


def replay(history: list[Entry]) -> tuple[ProducerStates, list[AbortedTransaction]]:
    states, aborted = ProducerStates(), []
    for entry in history:
        if entry.marker is not None:
            marker = read_marker(entry.marker)
            assert marker is not None
            ended = states.add_marker(
                entry.producer_id, entry.producer_epoch, marker, entry.base, entry.timestamp, -1
            )
            if ended is not None:
                aborted.append(ended)
        elif entry.producer_id >= 0:
            batch = ProducerBatch(
                entry.sequence,
                entry.sequence + len(entry.values) - 1,
                entry.base,
                entry.end - 1,
                entry.timestamp,
            )
            states.add_batch(
                entry.producer_id, entry.producer_epoch, batch, entry.transactional, -1
            )
    return states, aborted


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = make_disk()
        self.log: Log
        self.history: list[Entry] = []
        self.epoch = 0
        self.now_ms = NOW_MS
        #: The contents of the checkpoint files of the log dir.
        self.recovery_point = 0
        self.log_start = 0
        #: Epochs below a log start offset that was lost again are not known.
        self.start_ever = 0
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = open_log(
            self.disk,
            CONFIG,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start=self.log_start,
            now_ms=self.now_ms,
        )
        self.log.lower_recovery_point = self.lower_recovery_point

    def lower_recovery_point(self, to: Offset) -> None:
        self.recovery_point = min(self.recovery_point, to)

    # ── operations ───────────────────────────────────────────────────────────────────────────

    def make_entry(self, count: int, producer: int, transactional: bool) -> Entry:
        self.now_ms += 7
        entry = Entry(
            base=self.log.end_offset,
            values=tuple(b"%d/%d" % (self.now_ms, i) for i in range(count)),
            epoch=self.epoch,
            timestamp=self.now_ms,
        )
        if producer < 0:
            return entry
        known = self.log.producers.get(producer)
        sequence = known.last_sequence + 1 if known is not None else 0
        if known is not None and known.transaction_start >= 0:
            transactional = True
        return replace(
            entry,
            producer_id=producer,
            producer_epoch=0,
            sequence=sequence,
            transactional=transactional,
        )

    def append(self, entry: Entry) -> None:
        if entry.marker is not None:
            self.log.append_as_leader(
                entry.marker,
                leader_epoch=entry.epoch,
                now_ms=self.now_ms,
                origin=Origin.COORDINATOR,
            )
            return
        result = self.log.append_as_leader(
            make_batch(
                entry.values,
                timestamp=entry.timestamp,
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                base_sequence=entry.sequence,
                transactional=entry.transactional,
            ),
            leader_epoch=entry.epoch,
            now_ms=self.now_ms,
            verification=UNVERIFIED,
        )
        assert result.base_offset == entry.base

    @rule(count=st.integers(1, 4), producer=st.integers(-1, 2), transactional=st.booleans())
    def append_batch(self, count: int, producer: int, transactional: bool) -> None:
        entry = self.make_entry(count, producer, transactional)
        self.append(entry)
        self.history.append(entry)

    @rule(producer=st.integers(0, 2), commit=st.booleans())
    def append_marker(self, producer: int, commit: bool) -> None:
        entry = self.make_marker_entry(producer, commit)
        self.append(entry)
        self.history.append(entry)

    def make_marker_entry(self, producer: int, commit: bool) -> Entry:
        entry = self.make_entry(1, -1, False)
        return replace(
            entry,
            producer_id=producer,
            producer_epoch=0,
            marker=make_marker(producer, commit=commit, timestamp=entry.timestamp),
        )

    @rule(back=st.integers(0, 4))
    def repeat_batch(self, back: int) -> None:
        """A retried batch of the last five gets its first offset again."""
        mine = [e for e in self.history if e.producer_id == 1 and e.marker is None]
        known = self.log.producers.get(1)
        if known is None or back >= len(known.batches):
            return
        entry, end = mine[-1 - back], self.log.end_offset
        result = self.log.append_as_leader(
            make_batch(
                entry.values,
                producer_id=1,
                producer_epoch=0,
                base_sequence=entry.sequence,
                transactional=entry.transactional,
            ),
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
        )
        assert result.duplicate
        assert (result.base_offset, result.end_offset) == (entry.base, entry.end)
        assert self.log.end_offset == end

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        flush(self.log)
        assert self.log.durable_offset == self.log.end_offset
        if checkpoint:
            self.recovery_point = self.log.durable_offset
            self.log_start = self.log.log_start_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        to = self.pick_cut(share)
        self.epoch += 1
        self.log.truncate(Offset(to))
        self.history = [e for e in self.history if e.end <= to]

    def pick(self, share: float) -> int:
        start = self.log.log_start_offset
        return start + int((self.log.end_offset - start) * share)

    def pick_cut(self, share: float) -> int:
        """Not inside a batch that contains the log start offset: that would also remove records
        below it."""
        to = self.pick(share)
        start = self.log.log_start_offset
        return self.log.end_offset if any(e.base < start < e.end for e in self.history) else to

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.advance_start(Offset(self.pick(share)))

    @rule(passed_ms=st.integers(0, 1500), share=st.floats(0, 1))
    def retention(self, passed_ms: int, share: float) -> None:
        self.now_ms += passed_ms
        self.log.delete_old_segments(self.now_ms, Offset(self.pick(share)))
        self.log.remove_expired_files(self.now_ms)

    # ── stops ────────────────────────────────────────────────────────────────────────────────

    @rule()
    def stop_cleanly(self) -> None:
        start, end = self.log.log_start_offset, self.log.end_offset
        self.log.close(clean=True)
        self.recovery_point, self.log_start = self.log.durable_offset, start
        self.open(clean=True)
        assert (self.log.log_start_offset, self.log.end_offset) == (start, end)

    @rule()
    def kill(self) -> None:
        """The page cache survives, so all records do."""
        end = self.log.end_offset
        self.open(clean=False)
        assert self.log.end_offset == end

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.restart_after_power_loss(seed, durable=self.log.durable_offset)

    def start_after_power_loss(self, chance: random.Random) -> None:
        self.disk.platter.on_power_lost(chance)
        self.disk = MemoryDisk(self.disk.platter, random=chance)

    def restart_after_power_loss(self, seed: int, durable: int) -> None:
        chance = random.Random(seed)
        self.start_after_power_loss(chance)
        while chance.random() < 0.3:  # and once more while it recovers
            self.disk.crash_after(chance.randrange(1, 20))
            try:
                self.open(clean=False)
            except SimulatedCrash:
                pass
            self.start_after_power_loss(chance)
        self.open(clean=False)
        end = self.log.end_offset
        assert end >= durable
        assert end == 0 or end in {e.end for e in self.history} or end == self.log.log_start_offset
        self.history = [e for e in self.history if e.end <= end]

    @rule(
        seed=st.integers(0, 2**32),
        steps=st.integers(1, 12),
        work=st.sampled_from(
            ["append", "marker", "truncate", "roll", "retention", "flush", "close"]
        ),
        share=st.floats(0, 1),
    )
    def lose_power_during(self, seed: int, steps: int, work: str, share: float) -> None:
        durable = int(self.log.durable_offset)
        self.disk.crash_after(steps)
        to = self.pick_cut(share) if work == "truncate" else self.pick(share)
        try:
            match work:
                case "append":
                    entry = self.make_entry(2, 1, False)
                    self.history.append(entry)
                    self.append(entry)
                case "marker":
                    entry = self.make_marker_entry(1, False)
                    self.history.append(entry)
                    self.append(entry)
                case "truncate":
                    durable = min(durable, to)
                    if any(e.base < to < e.end for e in self.history):
                        durable = min(durable, max(e.base for e in self.history if e.base < to))
                    self.log.truncate(Offset(to))
                case "roll":
                    self.log.roll(self.now_ms)
                case "retention":
                    self.log.delete_old_segments(self.now_ms + 500, Offset(to))
                case "flush":
                    flush(self.log)
                case _:
                    self.log.close(clean=True)
        except SimulatedCrash:
            pass
        self.restart_after_power_loss(seed, durable)
        self.epoch += 1

    # ── invariants ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def holds_the_history(self) -> None:
        log = self.log
        records = read_all(log)
        start = log.log_start_offset
        expected = [
            (entry.base + i, value)
            for entry in self.history
            if entry.marker is None
            for i, value in enumerate(entry.values)
            if entry.base + i >= start
        ]
        assert [(r.offset, r.value) for r in records] == expected
        assert log.end_offset == (self.history[-1].end if self.history else start)

    @invariant()
    def derived_state_equals_a_replay(self) -> None:
        states, aborted = replay(self.history)
        assert self.log.producers == states
        assert self.log.first_unstable_offset == states.first_undecided_offset
        start, end = self.log.log_start_offset, self.log.end_offset
        found = self.log.aborted_transactions(start, end)
        first = self.log.segments[0].base_offset
        assert found == [a for a in aborted if a.last_offset >= max(start, first)]
        self.start_ever = max(self.start_ever, start)
        for entry in self.history:
            if entry.base >= self.start_ever:
                assert self.log.epoch_for_offset(entry.base) == entry.epoch
        assert start <= end
        assert self.log.durable_offset <= end

    @rule(back=st.integers(0, 30), bytes_max=st.integers(1, 600))
    def readers_hear_of_what_was_aborted(self, back: int, bytes_max: int) -> None:
        offset = max(self.log.log_start_offset, self.log.end_offset - back)
        part = self.log.read(offset, bytes_max=bytes_max)
        if part is None:
            return
        data = part.file.pread(part.size, part.position)
        last = max((h.last_offset for _, h in iterate_headers(data)), default=offset)
        aborted = self.log.find_aborted_in_slice(part, offset, self.log.end_offset)
        every = self.log.aborted_transactions(offset, self.log.end_offset)
        assert {a for a in every if a.first_offset <= last} <= set(aborted) <= set(every)

    @invariant()
    def finds_timestamps(self) -> None:
        start = self.log.log_start_offset
        for entry in self.history[-3:] + self.history[:3]:
            later = [e for e in self.history if e.end > start and e.timestamp >= entry.timestamp]
            found = self.log.offset_for_timestamp(entry.timestamp)
            assert found is not None if later else found is None
            if found is not None:
                assert found.offset == max(later[0].base, start)

    @invariant()
    def read_respects_its_bound(self) -> None:
        log = self.log
        for share in (0.3, 0.8):
            bound = self.pick(share)
            records = read_all(log, bound=bound)
            assert all(record.offset < bound for record in records)


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
