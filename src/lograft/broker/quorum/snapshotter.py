"""Takes a snapshot of the metadata log when enough was committed since the last one, and deletes
the log and the older snapshots that it replaces. The event loop only copies the image; a worker
writes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.metadata_loading import metadata_folder
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.broker.quorum.snapshots import SnapshotId, read_snapshot, snapshot_ids, write_snapshot
from lograft.model.errors import DiskFailed
from lograft.model.seams import Disk, Runtime
from lograft.model.types import Epoch, Offset
from lograft.storage.retention import take_expired_files, unlink_files
from lograft.wire.message import Message

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R")


class Snapshotter:
    """Takes snapshots in the background. `on_committed` must be added to the driver after the
    listener that updates the image."""

    def __init__(
        self,
        runtime: Runtime,
        driver: RaftDriver,
        metadata: ClusterMetadata,
    ) -> None:
        config = metadata.static_config
        self._runtime = runtime
        self._driver = driver
        self._config = config
        self._metadata = metadata
        self._folder = metadata_folder(config)
        #: `driver.committed_bytes` when the last snapshot was taken.
        self._bytes_mark = 0
        self._taken_ms = runtime.clock.mono_ms()
        self._wake = asyncio.Event()

    def on_committed(self, offset: Offset, epoch: Epoch, records: Sequence[Message]) -> None:
        grown = self._driver.committed_bytes - self._bytes_mark
        if grown >= self._config.metadata_log_max_record_bytes_between_snapshots:
            self._wake.set()

    async def run(self) -> None:
        """Runs as a task of the node, which checks once per interval."""
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        while True:
            wait_ms = self._taken_ms + interval_ms - self._runtime.clock.mono_ms()
            try:
                async with asyncio.timeout(max(wait_ms, 1) / 1000 if interval_ms else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self.take()

    async def take(self) -> SnapshotId | None:
        """Takes a snapshot of all committed records, and returns its id; None if there are no new
        ones."""
        self._taken_ms = self._runtime.clock.mono_ms()
        image = self._metadata.image
        newest = self._driver.snapshot_id
        snapshot_id = SnapshotId(Offset(image.offset + 1), image.epoch)
        if image.is_empty or image.in_transaction or snapshot_id == newest:
            return None
        self._bytes_mark = self._driver.committed_bytes
        now_ms = self._runtime.clock.wall_ms()
        records = image.copy().records()
        quorum = self._driver.quorum
        timestamp_ms = self._driver.last_committed_timestamp_ms
        # Committed records may be on the disks of other voters only: a crash could leave a log that
        # diverges from the snapshot before its end.
        await self._driver.wait_durable(snapshot_id.end_offset)
        await self._driver.mark_durable(snapshot_id.end_offset)
        job = partial(
            write_snapshot,
            self._runtime.disk,
            self._folder,
            snapshot_id,
            records,
            quorum=quorum,
            last_timestamp_ms=timestamp_ms,
            now_ms=now_ms,
        )
        size = await self._in_worker(job)
        LOGGER.info("wrote snapshot %s (%d bytes)", snapshot_id.file_name, size)
        self._driver.on_snapshot(snapshot_id, size)
        await self._retain(now_ms)
        return snapshot_id

    async def _retain(self, now_ms: int) -> None:
        """Deletes old snapshots by size and time, and the log before the oldest remaining one."""
        log, config = self._driver.log, self._config
        job = partial(
            remove_old_snapshots,
            self._runtime.disk,
            self._folder,
            log_bytes=log.size_bytes,
            bytes_max=config.metadata_max_retention_bytes,
            oldest_ms=now_ms - config.metadata_max_retention_ms
            if config.metadata_max_retention_ms >= 0
            else -1,
        )
        kept = await self._in_worker(job)
        async with self._driver.log_lock:
            if kept and log.log_start_offset < kept[0].end_offset <= log.end_offset:
                log.advance_start(kept[0].end_offset)
            self._driver.on_snapshots_kept(kept)
            removal = log.plan_removal(now_ms, self._driver.high_watermark)
            if removal is not None:
                await self._in_worker(removal.run)
                log.finish_removal(removal)
        expired = take_expired_files(log, now_ms)
        if expired:
            await self._in_worker(partial(unlink_files, self._runtime.disk, expired))

    async def _in_worker(self, job: Callable[[], R]) -> R:
        try:
            return await self._runtime.workers.run(job, lane=f"{self._folder}#snapshots")
        except OSError as error:
            raise DiskFailed(self._config.metadata_log_dir, error) from error


def remove_old_snapshots(
    disk: Disk, folder: str, *, log_bytes: int, bytes_max: int, oldest_ms: int
) -> list[SnapshotId]:
    """Deletes old snapshots, but never the newest. Returns the remaining ones, oldest first;
    blocks."""
    ids = snapshot_ids(disk, folder)
    sizes = {i: disk.open(f"{folder}/{i.file_name}").size for i in ids}
    total = log_bytes + sum(sizes.values())
    removed = False
    while len(ids) > 1:
        oldest = ids[0]
        too_much = 0 <= bytes_max < total
        if not too_much:
            try:
                if read_snapshot(disk, folder, oldest).last_timestamp_ms >= oldest_ms:
                    break
            except MetadataCorrupt:
                pass  # An intact newer one replaces it.
        disk.unlink(f"{folder}/{oldest.file_name}")
        total -= sizes[oldest]
        ids.pop(0)
        removed = True
    if removed:
        disk.fsync_dir(folder)
    return ids
