"""One of the folders in `log.dirs`: its identity, health and flusher."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from lograft.broker.partitions.flusher import Flusher
from lograft.model.errors import DiskFailed
from lograft.model.seams import Clock, Workers
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
        "segment_lock",
    )

    def __init__(
        self,
        path: str,
        directory_id: UUID,
        *,
        workers: Workers,
        clock: Clock,
        on_failed: "Callable[[LogDirectory, DiskFailed], None]",
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.offline = False
        #: Number of changes that are not in the checkpoint files yet; those of idle log dirs are
        #: not rewritten.
        self.changes = 0
        #: Number of logs, including those being created: new ones go to the log dir with the
        #: fewest.
        self.log_count = 0
        #: Partitions in the checkpoint files on disk.
        self.names_on_disk: set[TopicPartition] = set()
        #: Checkpoint entries of logs that could not be opened.
        self.kept: dict[TopicPartition, KeptOffsets] = {}
        #: Offset up to which each compacted log was cleaned.
        self.cleaner_offsets: dict[TopicPartition, Offset] = {}
        self.flusher = Flusher(self, workers, clock)
        #: Held while segments of a log are removed or replaced (retention, compaction, truncation),
        #: which takes several steps on the event loop and in a worker. Appends, reads and flushes
        #: continue.
        self.segment_lock = asyncio.Lock()
        self._on_failed = on_failed

    @property
    def cleaner_lane(self) -> str:
        """A separate lane, since flushes would wait behind a long compaction."""
        return f"{self.path}#cleaner"

    def fail(self, error: DiskFailed) -> None:
        if not self.offline:
            self.offline = True
            self._on_failed(self, error)

    def __repr__(self) -> str:
        return f"<LogDirectory {self.path}{' offline' if self.offline else ''}>"
