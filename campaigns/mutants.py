"""Storage with one safeguard taken out at a time: what the torture must notice.

A checker that was never seen to fail proves nothing. Each mutant replaces a function of
`storage/` (or drops one kind of call to the disk) while it is active; production code has no
switches for this. `hunt` says after how many seeds a mutant is caught.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from campaigns.storage_torture import torture
from lograft.simulation.checkers import Violation
from lograft.simulation.disk import SimulatedDisk, SimulatedFile
from lograft.storage import (
    epochs,
    flush_plan,
    index,
    log_dirs,
    producer_snapshots,
    producers,
    recovery,
    retention,
    transaction_index,
    truncation,
)
from lograft.storage.log import Log

SEEDS_MAX: Final = 400

Patch = tuple[Any, str, Any]


class _EqualToAll:
    """A checksum that never differs."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _any_checksum(*_: Any) -> _EqualToAll:
    return _EqualToAll()


def _durable_at_once(self: Log, upto: Any = None) -> Any:
    plan = _FLUSH_PLAN(self, upto)
    self.mark_durable(plan)
    return plan


def _ignore_failure(self: Any) -> None:
    with contextlib.suppress(Exception):
        _RUN(self)


def _only_active(log: Log, **keywords: Any) -> Any:
    plan = _PLAN_OF(log, **keywords)
    plan.files = plan.files[-1:]
    return plan


def _in_place(disk: Any, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append(data)
    file.fsync()


def _rename_unsynced(disk: Any, path: str, data: bytes) -> None:
    file = disk.open(path + ".tmp", create=True)
    file.truncate(0)
    file.append(data)
    disk.rename(path + ".tmp", path)
    disk.fsync_dir(path.rpartition("/")[0])


def _keep_mark(disk: Any, log_dir: str) -> int | None:
    return 0 if disk.exists(f"{log_dir}/{log_dirs.CLEAN_SHUTDOWN}") else None


def _without_fsync(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but fsync of files does nothing meanwhile."""

    def run(*args: Any, **keywords: Any) -> Any:
        original = SimulatedFile.fsync
        SimulatedFile.fsync = _nothing  # type: ignore[method-assign]
        try:
            return function(*args, **keywords)
        finally:
            SimulatedFile.fsync = original  # type: ignore[method-assign]

    return run


def _without_fsync_dir(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **keywords: Any) -> Any:
        original = SimulatedDisk.fsync_dir
        SimulatedDisk.fsync_dir = _nothing  # type: ignore[method-assign]
        try:
            return function(*args, **keywords)
        finally:
            SimulatedDisk.fsync_dir = original  # type: ignore[method-assign]

    return run


def _truncate_but_logs(self: SimulatedFile, size: int) -> None:
    if not self.path.endswith(".log"):
        _TRUNCATE(self, size)


def _truncate_but_indexes(self: SimulatedFile, size: int) -> None:
    if not self.path.endswith(("index",)):
        _TRUNCATE(self, size)


def _unlink_but_snapshots(self: SimulatedDisk, path: str) -> None:
    if not path.endswith(".snapshot"):
        _UNLINK(self, path)


def _one_batch_each(states: Any) -> bytes:
    for producer in states.all():
        del producer.batches[:-1]
    return _ENCODE(states)


_FLUSH_PLAN: Final = Log.flush_plan
_RUN: Final = flush_plan.FlushPlan.run
_PLAN_OF: Final[Any] = flush_plan.FlushPlan.of
_TRUNCATE: Final = SimulatedFile.truncate
_UNLINK: Final = SimulatedDisk.unlink
_ENCODE: Final = producer_snapshots.encode_snapshot

MUTANTS: Final[dict[str, tuple[str, list[Patch]]]] = {
    "flush skipped": (
        "a flush fsyncs nothing",
        [(flush_plan.FlushPlan, "run", _nothing)],
    ),
    "recovery point too early": (
        "a flush counts before it has run",
        [(Log, "flush_plan", _durable_at_once)],
    ),
    "failed fsync ignored": (
        "an error of a flush is swallowed",
        [(flush_plan.FlushPlan, "run", _ignore_failure)],
    ),
    "rolled segments not fsynced": (
        "a flush fsyncs the active segment only",
        [(flush_plan.FlushPlan, "of", staticmethod(_only_active))],
    ),
    "directory not fsynced": (
        "no folder is ever fsynced",
        [(SimulatedDisk, "fsync_dir", _nothing)],
    ),
    "crc not checked at recovery": (
        "recovery takes every batch whose lengths fit",
        [(recovery, "crc32c", _any_checksum)],
    ),
    "torn tail not cut": (
        "recovery and truncation leave the log file as long as it is",
        [(SimulatedFile, "truncate", _truncate_but_logs)],
    ),
    "index not truncated": (
        "index files keep old entries in front of new ones",
        [(SimulatedFile, "truncate", _truncate_but_indexes)],
    ),
    "time index forgets to cut": (
        "a truncation leaves the time index as it is",
        [(index.TimeIndex, "truncate", _nothing)],
    ),
    "truncation not fsynced": (
        "appends may follow a cut that is not durable",
        [(truncation, "truncate", _without_fsync(truncation.truncate))],
    ),
    "recovery point not lowered": (
        "the checkpoint stays above a cut",
        [(truncation, "_lower_recovery_point", _nothing)],
    ),
    "retention removes segments in one go": (
        "power loss may leave a hole",
        [
            (
                retention,
                "delete_old_segments",
                _without_fsync_dir(retention.delete_old_segments),
            )
        ],
    ),
    "recovery not fsynced": (
        "what recovery found counts as durable without an fsync",
        [(recovery, "_apply", _without_fsync(recovery._apply))],
    ),
    "epochs not cut": (
        "the epoch cache keeps what a truncation took",
        [(epochs.LeaderEpochs, "truncate_end", _nothing)],
    ),
    "stale snapshot kept": (
        "producer snapshots of cut offsets stay and are believed later",
        [(SimulatedDisk, "unlink", _unlink_but_snapshots)],
    ),
    "torn snapshot trusted": (
        "the CRC of a producer snapshot is not checked",
        [(producer_snapshots, "crc32c", _any_checksum)],
    ),
    "window of one batch": (
        "snapshots hold a producer's last batch only",
        [
            (producer_snapshots, "encode_snapshot", _one_batch_each),
            (recovery, "encode_snapshot", _one_batch_each),
        ],
    ),
    "aborted transactions not indexed": (
        "abort markers leave no trace in the index",
        [(transaction_index.TransactionIndex, "append", _nothing)],
    ),
    "sequence not checked": (
        "a leader takes every batch of an idempotent producer",
        [(producers.ProducerStates, "check", _nothing)],
    ),
    "checkpoint written in place": (
        "no temporary file, no rename",
        [(log_dirs, "write_atomically", _in_place)],
    ),
    "checkpoint renamed before its fsync": (
        "the new name may point to nothing",
        [(log_dirs, "write_atomically", _rename_unsynced)],
    ),
    "clean stop believed twice": (
        "the mark of a clean stop is not taken away",
        [(log_dirs, "consume_clean_shutdown", _keep_mark)],
    ),
}


@contextlib.contextmanager
def active(patches: list[Patch]) -> Iterator[None]:
    """What a class inherits is put over, and taken away again."""
    originals = [
        (owner, attribute, owner.__dict__.get(attribute, _INHERITED))
        for owner, attribute, _ in patches
    ]
    for owner, attribute, replacement in patches:
        assert hasattr(owner, attribute), f"{owner} has no {attribute} any more"
        setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for owner, attribute, original in originals:
            if original is _INHERITED:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, original)


_INHERITED: Final = object()


def hunt(name: str, *, seeds_max: int = SEEDS_MAX, first: int = 0) -> int | None:
    """How many seeds it takes to catch the mutant; None: it got away."""
    return hunt_with(_fails, MUTANTS[name][1], seeds=range(first, first + seeds_max))


def hunt_with(fails: Callable[[int], bool], patches: list[Patch], *, seeds: range) -> int | None:
    found = _hunt(lambda seed: "failed" if fails(seed) else "", patches, seeds)
    return None if found is None else found[0]


def hunt_by_runs(
    run: Callable[[int], Sequence[Violation]], patches: list[Patch], seeds: range
) -> tuple[int, str] | None:
    """Says also by what the mutant was caught: the first violated invariant, or the error of code
    that trips over its own assertion."""

    def verdict(seed: int) -> str:
        try:
            violations = run(seed)
        except Exception as error:
            return type(error).__name__
        return violations[0].invariant if violations else ""

    return _hunt(verdict, patches, seeds)


def _hunt(
    verdict: Callable[[int], str], patches: list[Patch], seeds: range
) -> tuple[int, str] | None:
    """A seed that fails without the mutant as well catches nothing."""
    for count, seed in enumerate(seeds, 1):
        with active(patches):
            caught = verdict(seed)
        if caught and not verdict(seed):
            return count, caught
    return None


def _fails(seed: int) -> bool:
    try:
        return torture(seed).violation is not None
    except Exception:
        # Storage that trips over its own assertion was caught as well.
        return True
