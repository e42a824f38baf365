"""The fsync of a log as a job for a worker: it owns its inputs and reads no shared state."""

from typing import TYPE_CHECKING

from lograft.model.errors import DiskFailed
from lograft.model.seams import Disk, File
from lograft.model.types import Offset
from lograft.storage.log_dirs import write_epochs
from lograft.storage.types import EpochEntry

if TYPE_CHECKING:
    from lograft.storage.log import Log


class FlushPlan:
    """Built on the event loop, run in a worker (one lane per log dir), then passed to
    `Log.mark_durable` on the event loop.

    The order of the fsyncs makes the recovery point correct: the leader epochs and all files of the
    segments below `upto` must be durable before `upto` may be used as the recovery point.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_epochs",
        "_sync_directory",
        "epoch_changes",
        "files",
        "truncations",
        "unflushed_last",
        "upto",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        files: list[File],
        unflushed_last: int,
        upto: Offset,
        truncations: int,
        epochs: list[EpochEntry] | None,
        epoch_changes: int,
        sync_directory: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.files = files
        #: The number of the last entry of `Log.unflushed_files` that this plan flushes.
        self.unflushed_last = unflushed_last
        self.upto = upto
        self.truncations = truncations
        self._epochs = epochs
        self.epoch_changes = epoch_changes
        self._sync_directory = sync_directory

    @classmethod
    def of(cls, log: "Log", *, needed: bool, rolled_only: bool = False) -> "FlushPlan":
        """With `rolled_only`, the active segment is not flushed."""
        files: list[File] = []
        epochs = None
        sync_directory = False
        upto = log.durable_offset
        if needed or log.unflushed_files or log.directory_changed:
            files = [file for _, file in log.unflushed_files]
            if not rolled_only:
                files.append(log.active.file)
            if log.epochs.changes != log.epochs_written:
                epochs = log.epochs.entries
            upto = Offset(log.active.base_offset) if rolled_only else log.end_offset
            # Cleared before the run: a file created during the run requires another fsync.
            sync_directory, log.directory_changed = log.directory_changed, False
        return cls(
            log.disk,
            log.directory,
            files=files,
            unflushed_last=log.unflushed_files[-1][0] if log.unflushed_files else 0,
            upto=upto,
            truncations=log.truncations,
            epochs=epochs,
            epoch_changes=log.epochs_written if epochs is None else log.epochs.changes,
            sync_directory=sync_directory,
        )

    @property
    def is_empty(self) -> bool:
        return not self.files

    def run(self) -> None:
        """Blocks. A failure is final for the log dir: nothing is tried a second time."""
        try:
            if self._epochs is not None:
                write_epochs(self._disk, self._directory, self._epochs)
            for file in self.files:
                file.fsync()
            if self._sync_directory:
                self._disk.fsync_dir(self._directory)
        except OSError as error:
            raise DiskFailed(self._directory.rpartition("/")[0], error) from error
