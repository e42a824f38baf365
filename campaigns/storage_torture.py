"""Torture test of a log: random operations, interrupted repeatedly by crashes at any disk
operation.

The harness acts as the log manager: it writes the checkpoints, runs flush plans, restarts after a
kill, a power loss, a failed disk or a clean shutdown, and crashes during recovery as well. After
every restart it compares the log with a model that is a plain list (`storage_model`):

* all acknowledged records exist after a kill, and all below the durable offset after a power loss
  (D1, D9);
* every batch read equals an appended batch, byte for byte, at its position (D2, D10);
* lookups by offset, timestamp and epoch, the aborted transactions and the producer state equal a
  full replay (D9, P3).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final
from uuid import UUID

from campaigns.storage_checks import check_log, is_prefix, read_all
from campaigns.storage_model import ModelBatch, ModelLog, Replay, model_batch
from campaigns.storage_workload import BatchMaker
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.types import Offset, TopicPartition
from lograft.simulation.disk import DiskFault, Operation, SimulatedDisk
from lograft.simulation.errors import InvariantViolated, SimulatedCrash
from lograft.simulation.platter import CAPACITY_BYTES, Platter
from lograft.simulation.trace import Streams, Trace
from lograft.storage import log_dirs
from lograft.storage.errors import OutOfOrderSequence, ProducerFenced
from lograft.storage.log import FlushPlan, Log
from lograft.storage.producers import UNVERIFIED
from lograft.storage.types import FixedLogConfig, RecoveryPlan
from lograft.wire.batches import patch, patch_timestamp

ROOT: Final = "/data"
PARTITION: Final = TopicPartition("t", 0)
DIRECTORY: Final = f"{ROOT}/{PARTITION}"
TOPIC_ID: Final = UUID(int=77)
START_MS: Final = 1_767_225_600_000

#: Lives (processes) of a run, and most steps in a life.
LIVES: Final = 8
STEPS: Final = 40
#: Most consecutive crashes during recovery.
CRASHES_IN_RECOVERY_MAX: Final = 4
FAULTS: Final[tuple[Operation, ...]] = ("write", "fsync", "fsync_dir", "create", "rename", "read")


@dataclass(slots=True)
class TortureReport:
    seed: int
    trace_hash: str = ""
    kills: int = 0
    power_losses: int = 0
    crashes_in_recovery: int = 0
    clean_stops: int = 0
    disk_failures: int = 0
    batches: int = 0
    violation: InvariantViolated | None = None
    last_events: list[str] = field(default_factory=list)

    @property
    def crashes(self) -> int:
        return self.kills + self.power_losses + self.crashes_in_recovery


def draw_config(random: Random) -> FixedLogConfig:
    """Draws small sizes and intervals, so that rare code paths are frequent."""
    return FixedLogConfig(
        segment_bytes=random.choice((3_000, 4_000, 8_000)),
        segment_ms=random.choice((3_000, 60_000, 604_800_000)),
        segment_index_bytes=random.choice((36, 120, 4_096)),
        index_interval_bytes=random.choice((0, 100, 600)),
        retention_bytes=random.choice((-1, -1, 6_000)),
        retention_ms=random.choice((-1, -1, 20_000)),
        message_timestamp_log_append=random.random() < 0.2,
        file_delete_delay_ms=random.choice((0, 1_000)),
    )


class Torture:
    def __init__(self, seed: int, *, lives: int = LIVES, steps: int = STEPS) -> None:
        self.report = TortureReport(seed)
        self.streams = Streams(seed)
        self.trace = Trace()
        self.platter = Platter()
        # A restart after a failed fsync counts as a reboot: recovery cannot distinguish bytes in
        # the page cache from bytes on stable storage, and does not promise to.
        self.platter.eviction_chance = 1.0
        self.now_ms = START_MS
        self._lives = lives
        self._steps = steps
        self._random = self.streams.stream("workload")
        self._faults = self.streams.stream("faults")
        self.config = self._draw_config()
        self._maker = self._new_maker()
        #: Expected contents of the log, and the producer state derived from them.
        self.model = ModelLog()
        self.replay = Replay()
        #: Possible contents after a crash during the current operation.
        self.alternatives: list[ModelLog] = []
        #: Offset below which records must survive a power loss.
        self.floor = 0
        #: Bounds of the log start offset: the checkpointed and the requested one.
        self.log_start_floor = 0
        self.log_start = 0
        self.leader_epoch = 0
        #: In the order of creation, because a single lane runs them.
        self._plans: list[FlushPlan] = []
        #: Plans that have run, but are not marked durable in the log yet.
        self._finished: list[FlushPlan] = []
        self._disks = 0
        self.disk = self._new_disk()
        self.log = self._first_open()

    def _draw_config(self) -> FixedLogConfig:
        config = draw_config(self._random)
        # A third of the configurations, without another random draw, so that seeds keep their
        # meaning.
        return replace(config, preallocate=config.segment_index_bytes == 120)

    def _new_maker(self) -> BatchMaker:
        return BatchMaker(self._random)

    # -- lives -----------------------------------------------------------------------------------

    def run(self) -> TortureReport:
        try:
            for _ in range(self._lives):
                self._live()
        except InvariantViolated as violation:
            self._report_violation(violation)
        except LograftError as error:
            # The log must not reject any operation of the harness.
            self._report_violation(InvariantViolated("D5", f"{type(error).__name__}: {error}"))
        self.report.trace_hash = self.trace.digest()
        self.report.last_events = list(self.trace.last)
        return self.report

    def _report_violation(self, violation: InvariantViolated) -> None:
        self.report.violation = violation
        self.trace.event("violated", violation.invariant)

    def _live(self) -> None:
        fate = self._faults.choices(
            ("crash", "kill", "power", "stop", "fault", "full"), (50, 10, 15, 15, 8, 2)
        )[0]
        self.trace.event("fate", fate)
        if fate == "crash":
            self.disk.crash_after(self._faults.randint(1, 120))
        elif fate == "fault":
            operation = self._faults.choice(FAULTS)
            self.disk.faults.append(
                DiskFault(operation=operation, skip=self._faults.randint(0, 30))
            )
        elif fate == "full":
            self.platter.capacity_bytes = self.platter.used_bytes + self._faults.randrange(3_000)
        is_failed = False
        try:
            for _ in range(self._faults.randint(1, self._steps)):
                self._step()
            if fate == "stop":
                self._stop_cleanly()
        except SimulatedCrash:
            pass
        except (DiskFailed, OSError):
            # OSErrors are raised for files that the harness itself reads and writes.
            is_failed = True
            self.report.disk_failures += 1
            self._check_rejects_appends()
        self._restart(is_failed=is_failed, power=fate == "power")

    def _restart(self, *, is_failed: bool, power: bool) -> None:
        # After a failed fsync, data in the page cache may be lost, as in a power loss.
        is_lossy = is_failed
        for attempt in range(CRASHES_IN_RECOVERY_MAX + 1):
            power_now = power or self._faults.random() < 0.5
            is_lossy = is_lossy or power_now
            self._end_life(power=power_now)
            self.disk = self._new_disk()
            if attempt < CRASHES_IN_RECOVERY_MAX and self._faults.random() < 0.4:
                self.disk.crash_after(self._faults.randint(1, 25))
            try:
                self.log = self._open(self._read_checkpoints())
                self.disk.crash = None
                break
            except SimulatedCrash:
                self.report.crashes_in_recovery += 1
            except LograftError as error:
                raise InvariantViolated("D9", f"the log cannot be opened: {error}") from error
        self._compare_after_restart(is_lossy=is_lossy)

    def _end_life(self, *, power: bool) -> None:
        self.disk.kill()
        self._plans.clear()
        self._finished.clear()
        self.platter.capacity_bytes = CAPACITY_BYTES
        faults = self.streams.stream("faults:disk")
        self.trace.event("power-loss" if power else "kill")
        if power:
            self.report.power_losses += 1
            self.platter.on_power_lost(faults)
        else:
            self.report.kills += 1
            self.platter.on_process_killed(faults)

    def _new_disk(self) -> SimulatedDisk:
        self._disks += 1
        return SimulatedDisk(
            self.platter,
            random=self.streams.stream(f"disk:{self._disks}"),
            trace=self.trace,
            wall_ms=lambda: self.now_ms,
        )

    def _first_open(self) -> Log:
        self.disk.make_dir(DIRECTORY)
        self.disk.fsync_dir("/")
        self.disk.fsync_dir(ROOT)
        return self._open(RecoveryPlan(clean=True))

    def _open(self, plan: RecoveryPlan) -> Log:
        self.trace.event("open", plan.clean, plan.recovery_point, plan.log_start)
        log = Log.open(
            self.disk,
            DIRECTORY,
            topic_partition=PARTITION,
            topic_id=TOPIC_ID,
            config=self.config,
            now_ms=self.now_ms,
            recovery=plan,
        )
        log.lower_recovery_point = self._lower_recovery_point
        if log.end_offset < plan.recovery_point:
            self._lower_recovery_point(log.end_offset)
        return log

    # -- the log manager's part ------------------------------------------------------------------

    def _read_checkpoints(self) -> RecoveryPlan:
        clean = log_dirs.consume_clean_shutdown(self.disk, ROOT)
        points = log_dirs.read_checkpoint(self.disk, f"{ROOT}/{log_dirs.RECOVERY_POINTS}")
        starts = log_dirs.read_checkpoint(self.disk, f"{ROOT}/{log_dirs.LOG_STARTS}")
        return RecoveryPlan(
            clean=clean is not None,
            recovery_point=Offset(points.get(PARTITION, 0)),
            log_start=Offset(starts.get(PARTITION, 0)),
        )

    def _write_recovery_point(self, offset: int) -> None:
        path = f"{ROOT}/{log_dirs.RECOVERY_POINTS}"
        log_dirs.write_checkpoint(self.disk, path, {PARTITION: offset})

    def _lower_recovery_point(self, to: Offset) -> None:
        self._write_recovery_point(to)

    def _checkpoint(self) -> None:
        self._write_recovery_point(self.log.durable_offset)
        start = self.log.log_start_offset
        log_dirs.write_checkpoint(self.disk, f"{ROOT}/{log_dirs.LOG_STARTS}", {PARTITION: start})
        self.log_start_floor = start

    def _stop_cleanly(self) -> None:
        self._plans.clear()
        self._finished.clear()
        self.log.close(clean=True)
        self.floor = self.log.durable_offset
        self._checkpoint()
        log_dirs.write_clean_shutdown(self.disk, ROOT, 5)
        self.report.clean_stops += 1
        self.trace.event("clean-stop")

    # -- steps ----------------------------------------------------------------------------------

    def _step(self) -> None:
        self.now_ms += self._random.choice((0, 1, 1, 10, 500, 5_000))
        steps = self._steps_by_weight()
        self._random.choices([each for each, _ in steps], [weight for _, weight in steps])[0]()

    def _steps_by_weight(self) -> tuple[tuple[Callable[[], None], int], ...]:
        return (
            (self._append, 40), (self._append_as_follower, 12), (self._repeat, 4),
            (self._send_invalid, 4), (self._roll, 3), (self._make_plan, 6), (self._run_plan, 9),
            (self._mark_durable, 6),
            (self._checkpoint, 6), (self._truncate, 3), (self._restart_at, 1),
            (self._advance_start, 3), (self._retain, 3), (self._remove_files, 2),
            (self._new_epoch, 3), (self._compare, 4),
        )  # fmt: skip

    def _assign_offsets(self, data: bytes, base_offset: int) -> ModelBatch:
        """Returns the batch with its offset and epoch in the log."""
        numbered = bytearray(data)
        patch(numbered, 0, base_offset, self.leader_epoch)
        return model_batch(bytes(numbered))

    def _append(self) -> None:
        draft = self._maker.draw(self.replay, self.now_ms, self.log.log_start_offset)
        numbered = bytearray(draft.data)
        patch(numbered, 0, self.model.end, self.leader_epoch)
        if self.config.message_timestamp_log_append:
            patch_timestamp(numbered, 0, len(numbered), self.now_ms)
        batch = model_batch(bytes(numbered))
        self.alternatives = [self._with(batch)]
        result = self.log.append_as_leader(
            memoryview(bytearray(draft.data)),
            leader_epoch=self.leader_epoch,
            now_ms=self.now_ms,
            origin=draft.origin,
            verification=UNVERIFIED,
        )
        if (result.base_offset, result.end_offset, result.duplicate) != (
            batch.base_offset,
            batch.end,
            False,
        ):
            raise InvariantViolated("D4", f"{result}, but expected {batch.base_offset}")
        self._on_acknowledged(batch)

    def _append_as_follower(self) -> None:
        replay = Replay.of(self.model.batches)
        extended = ModelLog(self.model.start, self.model.batches)
        new = []
        for _ in range(self._random.randint(1, 3)):
            draft = self._maker.draw(replay, self.now_ms, self.log.log_start_offset)
            batch = self._assign_offsets(draft.data, extended.end)
            extended.append(batch)
            replay.apply(batch)
            new.append(batch)
        self.alternatives = [extended]
        data = b"".join(batch.data for batch in new)
        if self._random.random() < 0.3:
            data += new[0].data[: self._random.randrange(len(new[0].data))]
        self.log.append_as_follower(memoryview(bytearray(data)), now_ms=self.now_ms)
        self._on_acknowledged(*new)

    def _with(self, *batches: ModelBatch) -> ModelLog:
        return ModelLog(self.model.start, [*self.model.batches, *batches])

    def _on_acknowledged(self, *batches: ModelBatch) -> None:
        self.alternatives = []
        for batch in batches:
            self.model.append(batch)
            self.replay.apply(batch)
            self.report.batches += 1
        if self.log.end_offset != self.model.end:
            raise InvariantViolated(
                "D6", f"log end offset {self.log.end_offset}, not {self.model.end}"
            )

    def _repeat(self) -> None:
        data = self._maker.repeat(self.replay, self.log.log_start_offset)
        if data is None:
            return
        if self.config.message_timestamp_log_append:
            return
        original = next(
            batch
            for producer in self.replay.producers.values()
            for batch in producer.batches
            if batch.data[12 + 4 :] == data[12 + 4 :]
        )
        result = self.log.append_as_leader(
            memoryview(bytearray(data)), leader_epoch=self.leader_epoch, now_ms=self.now_ms
        )
        if not result.duplicate or result.base_offset != original.base_offset:
            raise InvariantViolated(
                "P3", f"a duplicate of {original.base_offset} returned {result}"
            )

    def _send_invalid(self) -> None:
        log_start = self.log.log_start_offset
        invalid = self._maker.out_of_order(self.replay, self.now_ms, log_start)
        error: type[LograftError] = OutOfOrderSequence
        if self._random.random() < 0.5:
            invalid = self._maker.draw_fenced(self.replay, self.now_ms, log_start)
            error = ProducerFenced
        if invalid is None:
            return
        try:
            self.log.append_as_leader(
                memoryview(bytearray(invalid)), leader_epoch=self.leader_epoch, now_ms=self.now_ms
            )
        except error:
            return
        raise InvariantViolated("P2", f"{error.__name__} was not raised")

    def _roll(self) -> None:
        self.log.roll(self.now_ms)

    def _make_plan(self) -> None:
        plan = self.log.flush_plan()
        if not plan.is_empty:
            self._plans.append(plan)

    def _run_plan(self) -> None:
        """Runs the worker's part; the log is notified some steps later."""
        if not self._plans:
            self._make_plan()
        if self._plans:
            plan = self._plans.pop(0)
            plan.run()
            self._finished.append(plan)
            if self._random.random() < 0.5:
                self._mark_durable()

    def _mark_durable(self) -> None:
        if self._finished:
            self.log.mark_durable(self._finished.pop(0))
            self._check_durable_offset()

    def _check_durable_offset(self) -> None:
        if self.log.durable_offset > self.log.end_offset:
            raise InvariantViolated("D6", "the durable offset is beyond the log end offset")
        self.floor = self.log.durable_offset

    def _truncate(self) -> None:
        low = max(self.log_start, self.log.log_start_offset)
        to = self._random.randint(max(low, self.model.end - 12), self.model.end)
        truncated = self.model.truncate(to)
        if truncated.end < low:
            return
        self.alternatives = [truncated]
        self.floor = min(self.floor, truncated.end)
        self.log.truncate(Offset(to))
        self._replace_model(truncated)

    def _restart_at(self) -> None:
        offset = self.model.end + self._random.randrange(20)
        fresh = ModelLog(offset)
        self.alternatives = [fresh, *(ModelLog(start) for start in range(offset))]
        self.floor = 0
        self.log_start = offset
        self.log.truncate_fully_and_start_at(Offset(offset), now_ms=self.now_ms)
        self._replace_model(fresh)

    def _replace_model(self, model: ModelLog) -> None:
        self.alternatives = []
        self.model = model
        self.replay = Replay.of(model.batches)
        if self.log.end_offset != model.end:
            raise InvariantViolated("D6", f"truncated to {self.log.end_offset}, not {model.end}")
        self._check_durable_offset()

    def _advance_start(self) -> None:
        to = self._random.randint(self.log.log_start_offset, self.model.end)
        self.log_start = max(self.log_start, to)
        self.log.advance_start(Offset(to))

    def _retain(self) -> None:
        before = self.log.log_start_offset
        self.log_start = self.model.end
        self.log.delete_old_segments(self.now_ms, Offset(self.model.end))
        self.log_start = self.log.log_start_offset
        is_unlimited = self.config.retention_bytes < 0 and self.config.retention_ms < 0
        if is_unlimited and self.log_start != before:
            raise InvariantViolated("D11", "retention deleted segments although it is unlimited")

    def _remove_files(self) -> None:
        self.log.remove_expired_files(self.now_ms)

    def _new_epoch(self) -> None:
        self.leader_epoch += self._random.randint(1, 3)

    # -- checks ----------------------------------------------------------------------------------

    def _check_rejects_appends(self) -> None:
        """A disk failure is permanent: the log must reject further appends."""
        if not self.log.has_failed:
            return
        data = bytearray(self._maker.draw(Replay(), self.now_ms, 0).data)
        try:
            self.log.append_as_leader(
                memoryview(data), leader_epoch=self.leader_epoch, now_ms=self.now_ms
            )
        except LograftError:
            return
        raise InvariantViolated("D8", "an append was accepted after the disk had failed")

    def _compare(self) -> None:
        batches = read_all(self.log, self._random)
        if not is_prefix(self.model, batches, self.log) or self.log.end_offset != self.model.end:
            raise InvariantViolated("D2", "the log differs from the appended batches")
        check_log(self.log, self.model, self.replay, self._random)

    def _compare_after_restart(self, *, is_lossy: bool) -> None:
        log = self.log
        self.trace.event("recovered", log.log_start_offset, log.end_offset, log.durable_offset)
        candidates = [*self.alternatives, self.model]
        required = self.floor if is_lossy else min(each.end for each in candidates)
        if log.end_offset < required:
            raise InvariantViolated("D9", f"recovered to {log.end_offset}, {required} was durable")
        if not self.log_start_floor <= log.log_start_offset <= self.log_start:
            raise InvariantViolated(
                "D6",
                f"log start {log.log_start_offset} is not in "
                f"{self.log_start_floor} to {self.log_start}",
            )
        batches = read_all(log, self._random)
        if not batches and log.segments[0].base_offset < log.end_offset:
            # No visible batches, but not emptied: the old contents continue, with open
            # transactions.
            candidates.reverse()
        line = next((each for each in candidates if is_prefix(each, batches, log)), None)
        if line is None:
            raise InvariantViolated(
                "D2", "the recovered log is not a prefix of the appended batches"
            )
        self.alternatives = []
        self.model = line.truncate(log.end_offset)
        if self.model.end != log.end_offset:
            # Only records below the log start offset are lost: the log continues at its start.
            self.model = ModelLog(log.end_offset)
        self.replay = Replay.of(self.model.batches)
        self.log_start = log.log_start_offset
        self._check_durable_offset()
        check_log(log, self.model, self.replay, self._random)


def torture(seed: int, *, lives: int = LIVES, steps: int = STEPS) -> TortureReport:
    return Torture(seed, lives=lives, steps=steps).run()
