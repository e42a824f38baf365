"""The checkpoint files of a log dir: collected on the event loop, written by a worker.

A recovery point promises that everything below it is fsynced, so it is always a durable offset. An
entry is identified by the name of its partition: before a new log gets the name of an old one, the
entry of the old one must be removed from disk (`names_on_disk`).
"""

from collections.abc import Iterable
from typing import NamedTuple

from lograft.broker.partitions.partition import KeptOffsets, Partition
from lograft.model.errors import DiskFailed
from lograft.model.seams import Disk
from lograft.model.types import Offset, TopicPartition
from lograft.storage.log import Log
from lograft.storage.log_dirs import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    write_checkpoint,
)


class Checkpoints(NamedTuple):
    disk: Disk
    log_dir: str
    recovery_points: dict[TopicPartition, Offset]
    log_starts: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]
    cleaner_offsets: dict[TopicPartition, Offset]

    @classmethod
    def take(
        cls,
        disk: Disk,
        log_dir: str,
        logs: Iterable[tuple[Partition, Log]],
        *,
        kept: dict[TopicPartition, KeptOffsets],
        cleaner_offsets: dict[TopicPartition, Offset],
    ) -> "Checkpoints":
        taken = cls(disk, log_dir, {}, {}, {}, cleaner_offsets.copy())
        for topic_partition, offsets in kept.items():
            taken.recovery_points[topic_partition] = offsets.recovery_point
            if offsets.log_start:
                taken.log_starts[topic_partition] = offsets.log_start
        for partition, log in logs:
            topic_partition = log.topic_partition
            taken.high_watermarks[topic_partition] = partition.high_watermark
            if partition.kept_offsets is not None:
                taken.recovery_points[topic_partition] = partition.kept_offsets.recovery_point
                taken.log_starts[topic_partition] = partition.kept_offsets.log_start
                continue
            taken.recovery_points[topic_partition] = log.durable_offset
            # Otherwise the log start is known from the file names.
            if log.is_removing or log.log_start_offset > log.segments[0].base_offset:
                taken.log_starts[topic_partition] = log.log_start_offset
        return taken

    def write_all(self) -> None:
        self._write(LOG_STARTS, self.log_starts)
        self._write(RECOVERY_POINTS, self.recovery_points)
        self._write(CLEANER_OFFSETS, self.cleaner_offsets)
        self.write_high_watermarks()

    @property
    def names(self) -> set[TopicPartition]:
        return {
            *self.recovery_points,
            *self.log_starts,
            *self.cleaner_offsets,
            *self.high_watermarks,
        }

    def write_high_watermarks(self) -> None:
        self._write(HIGH_WATERMARKS, self.high_watermarks)

    def _write(self, name: str, offsets: dict[TopicPartition, Offset]) -> None:
        try:
            write_checkpoint(self.disk, f"{self.log_dir}/{name}", offsets)
        except OSError as error:
            raise DiskFailed(self.log_dir, error) from error
