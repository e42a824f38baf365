"""One of the folders of `log.dirs`: its identity, its health, its flusher."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from lograft.broker.partitions.flusher import Flusher
from lograft.model.errors import DiskFailed
from lograft.model.seams import Workers
from lograft.model.types import Offset, TopicPartition

if TYPE_CHECKING:
    from lograft.broker.partitions.partition import KeptOffsets


class LogDirectory:
    """A failed write, read or fsync is final: the directory is offline until a restart."""

    __slots__ = (
        "_on_failed",
        "changes",
        "cleaner_offsets",
        "directory_id",
        "flusher",
        "kept",
        "log_count",
        "names_on_disk",
        "offline",
        "path",
        "surgery",
    )

    def __init__(
        self,
        path: str,
        directory_id: UUID,
        *,
        workers: Workers,
        on_failed: "Callable[[LogDirectory, DiskFailed], None]",
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.offline = False
        #: Counts what the checkpoint files do not know yet; idle dirs are not written.
        self.changes = 0
        #: Logs here, those under way included: new ones go where the fewest are.
        self.log_count = 0
        #: Partitions that the checkpoint files on disk name.
        self.names_on_disk: set[TopicPartition] = set()
        #: What the checkpoints said of logs that could not be opened.
        self.kept: dict[TopicPartition, KeptOffsets] = {}
        #: How far compaction has come in each compacted log.
        self.cleaner_offsets: dict[TopicPartition, Offset] = {}
        self.flusher = Flusher(self, workers)
        #: Held by whoever takes segments of a log away or replaces them (retention, compaction,
        #: truncation): they need several steps, on the loop and in a worker, and the worker takes
        #: one after the other anyway. Appends, reads and flushes go on meanwhile.
        self.surgery = asyncio.Lock()
        self._on_failed = on_failed

    @property
    def cleaner_lane(self) -> str:
        """Compaction takes long: a lane of its own, or flushes would wait behind it."""
        return f"{self.path}#cleaner"

    def fail(self, error: DiskFailed) -> None:
        if not self.offline:
            self.offline = True
            self._on_failed(self, error)

    def __repr__(self) -> str:
        return f"<LogDirectory {self.path}{' offline' if self.offline else ''}>"
