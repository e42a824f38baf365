"""Mutants of the storage room: each removes one safeguard, which the torture test must detect.

A checker that has never failed proves nothing. Each mutant replaces a function of `storage/` (or
drops one kind of disk call) while it is active; production code has no switches for this. `hunt`
returns the number of seeds until a mutant is caught."""

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
    """A checksum that equals every other one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _do_nothing(*_: Any, **__: Any) -> None:
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
    """Wraps a function so that fsync of files does nothing while it runs."""

    def run(*args: Any, **keywords: Any) -> Any:
        original = SimulatedFile.fsync
        SimulatedFile.fsync = _do_nothing  # type: ignore[method-assign]
        try:
            return function(*args, **keywords)
        finally:
            SimulatedFile.fsync = original  # type: ignore[method-assign]

    return run


def _without_fsync_dir(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **keywords: Any) -> Any:
        original = SimulatedDisk.fsync_dir
        SimulatedDisk.fsync_dir = _do_nothing  # type: ignore[method-assign]
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
        [(flush_plan.FlushPlan, "run", _do_nothing)],
    ),
    "recovery point too early": (
        "a flush counts as complete before it has run",
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
        [(SimulatedDisk, "fsync_dir", _do_nothing)],
    ),
    "crc not checked at recovery": (
        "recovery accepts every batch whose lengths fit",
        [(recovery, "crc32c", _any_checksum)],
    ),
    "torn tail not truncated": (
        "recovery and truncation do not shorten the log file",
        [(SimulatedFile, "truncate", _truncate_but_logs)],
    ),
    "index not truncated": (
        "index files keep old entries before new ones",
        [(SimulatedFile, "truncate", _truncate_but_indexes)],
    ),
    "time index not truncated": (
        "a truncation does not truncate the time index",
        [(index.TimeIndex, "truncate", _do_nothing)],
    ),
    "truncation not fsynced": (
        "appends may follow a truncation that is not durable",
        [(truncation, "truncate", _without_fsync(truncation.truncate))],
    ),
    "recovery point not lowered": (
        "the recovery point stays above a truncation",
        [(truncation, "_lower_recovery_point", _do_nothing)],
    ),
    "retention without fsync of the folder": (
        "a power loss may leave a gap",
        [
            (
                retention,
                "delete_old_segments",
                _without_fsync_dir(retention.delete_old_segments),
            )
        ],
    ),
    "recovery not fsynced": (
        "recovered records count as durable without an fsync",
        [(recovery, "_apply", _without_fsync(recovery._apply))],
    ),
    "epochs not truncated": (
        "the epoch cache keeps truncated epochs",
        [(epochs.LeaderEpochs, "truncate_end", _do_nothing)],
    ),
    "stale snapshot kept": (
        "producer snapshots of truncated offsets are kept and used later",
        [(SimulatedDisk, "unlink", _unlink_but_snapshots)],
    ),
    "torn snapshot trusted": (
        "the CRC of a producer snapshot is not checked",
        [(producer_snapshots, "crc32c", _any_checksum)],
    ),
    "window of one batch": (
        "snapshots contain only a producer's last batch",
        [
            (producer_snapshots, "encode_snapshot", _one_batch_each),
            (recovery, "encode_snapshot", _one_batch_each),
        ],
    ),
    "aborted transactions not indexed": (
        "abort markers are not added to the index",
        [(transaction_index.TransactionIndex, "append", _do_nothing)],
    ),
    "sequence not checked": (
        "a leader accepts every batch of an idempotent producer",
        [(producers.ProducerStates, "check", _do_nothing)],
    ),
    "checkpoint written in place": (
        "no temporary file, no rename",
        [(log_dirs, "write_atomically", _in_place)],
    ),
    "checkpoint renamed before its fsync": (
        "the new name may refer to missing data",
        [(log_dirs, "write_atomically", _rename_unsynced)],
    ),
    "clean shutdown marker kept": (
        "the clean shutdown marker is not removed",
        [(log_dirs, "consume_clean_shutdown", _keep_mark)],
    ),
}


@contextlib.contextmanager
def active(patches: list[Patch]) -> Iterator[None]:
    """Applies the patches and reverts them; an inherited attribute is overridden and removed
    again."""
    originals = [
        (owner, attribute, owner.__dict__.get(attribute, _INHERITED))
        for owner, attribute, _ in patches
    ]
    for owner, attribute, replacement in patches:
        assert hasattr(owner, attribute), f"{owner} no longer has {attribute}"
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
    """Returns the number of seeds until the mutant is caught, or None."""
    return hunt_with(_fails, MUTANTS[name][1], seeds=range(first, first + seeds_max))


def hunt_with(fails: Callable[[int], bool], patches: list[Patch], *, seeds: range) -> int | None:
    found = _hunt(lambda seed: "failed" if fails(seed) else "", patches, seeds)
    return None if found is None else found[0]


def hunt_by_runs(
    run: Callable[[int], Sequence[Violation]], patches: list[Patch], seeds: range
) -> tuple[int, str] | None:
    """Returns the number of seeds and what caught the mutant: the first violated invariant, or the
    exception of an assertion in the code under test."""

    def outcome(seed: int) -> str:
        try:
            violations = run(seed)
        except Exception as error:
            return type(error).__name__
        return violations[0].invariant if violations else ""

    return _hunt(outcome, patches, seeds)


def _hunt(
    outcome: Callable[[int], str], patches: list[Patch], seeds: range
) -> tuple[int, str] | None:
    """A seed that also fails without the mutant does not count."""
    for count, seed in enumerate(seeds, 1):
        with active(patches):
            caught = outcome(seed)
        if caught and not outcome(seed):
            return count, caught
    return None


def _fails(seed: int) -> bool:
    try:
        return torture(seed).violation is not None
    except Exception:
        # A failed assertion in the code under test also catches the mutant.
        return True
