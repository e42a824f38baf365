"""Moves replicas between the log dirs of this broker while they are in use (KIP-113).

The copy is built in the other log dir, in a folder marked `-future`, like the log of a follower.
Once it has almost caught up, appends wait while the rest is copied. The copy is fsynced and gets
the name of the log, and the old folder is renamed. The `Log` object then uses the new files, which
is invisible to its users. The copy has its name, durably, before the old folder is renamed, so
whenever the process ends, one of the two is complete.

A move that was interrupted by a shutdown starts again at the next start.

A replica in raft mode stays the same voter. Its votes are moved, too, and it accepts requests for
the id of its old log dir until the leader has written the new one to the log
(`RaftLeader.find_moved_voter`). So the replica must never exist twice. Before the copy gets its
name, the target is written to the source (`interrupted_moves.py`). If an operation fails after
that, the replica is offline until a start has found out which folder is the replica.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import ReplicaNotMovable
from lograft.broker.logs.interrupted_moves import past_directories
from lograft.broker.logs.log_loading import open_at, rename_logs
from lograft.broker.logs.log_manager import LogManager
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import KeptOffsets, Partition
from lograft.broker.partitions.replication_throttle import PAUSE_MS, ReplicationThrottle
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.seams import Disk, Runtime, Task
from lograft.model.types import Offset, ReplicationMode
from lograft.storage.errors import BeginsInsideBatch, OffsetOutOfRange
from lograft.storage.log import Log
from lograft.storage.log_dirs import (
    deleted_directory_name,
    directory_name,
    future_directory_name,
    write_moved_from,
    write_moving_to,
)
from lograft.storage.types import RecoveryPlan

LOGGER: Final = logging.getLogger(__name__)
RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
RATE_WINDOW: Final = (
    "alter.log.dirs.replication.quota.window.num",
    "alter.log.dirs.replication.quota.window.size.seconds",
)
#: Maximum number of bytes that are copied at a time.
COPY_BYTES: Final = 1 << 20
#: Maximum number of bytes of the copy in the page cache only.
FLUSH_BYTES: Final = 1 << 24


class Move:
    """The move of one replica; `future` is its copy, once that exists."""

    __slots__ = ("future", "is_arriving", "partition", "target", "task")

    def __init__(self, partition: Partition, target: LogDirectory) -> None:
        self.partition = partition
        self.target = target
        self.future: Log | None = None
        #: Whether the final steps have started, after which the move is not cancelled.
        self.is_arriving = False
        self.task: Task | None = None

    @property
    def lag(self) -> int:
        """Number of records that the copy lacks."""
        log, future = self.partition.log, self.future
        if log is None:
            return 0
        end = log.log_start_offset if future is None else future.end_offset
        return max(0, log.end_offset - end)


class Voters(Protocol):
    """The replicas that are, were or will be in raft mode (`replicas/raft_partitions.py`)."""

    def pause(self, partition: Partition) -> bool: ...

    async def carry_votes(self, partition: Partition, target: LogDirectory) -> None: ...

    def resume(self, partition: Partition, *, is_moved: bool) -> None: ...


class LogMoves:
    def __init__(
        self,
        runtime: Runtime,
        logs: LogManager,
        voters: Voters,
        *,
        metadata: ClusterMetadata,
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._logs = logs
        self._voters = voters
        self.throttle = ReplicationThrottle(RATE, metadata, window=RATE_WINDOW)
        self.moves: dict[Partition, Move] = {}
        threads = metadata.config.value("num.replica.alter.log.dirs.threads")
        at_once = threads if isinstance(threads, int) else len(logs.directories)
        self._copies = asyncio.Semaphore(max(1, at_once))

    def move(self, partition: Partition, target: LogDirectory) -> None:
        """Starts a move. If the target is the present log dir, cancels the move in progress. Raises
        ReplicaNotMovable."""
        current = self.moves.get(partition)
        if current is not None and current.target is target:
            return
        if current is not None:
            if current.is_arriving:
                raise ReplicaNotMovable(
                    f"another move of {partition.topic_partition} is about to complete: retry"
                )
            assert current.task is not None
            current.task.cancel()
            del self.moves[partition]
        if partition.directory is target:
            return
        move = self.moves[partition] = Move(partition, target)
        name = f"move {partition.topic_partition}"
        move.task = self._runtime.spawn(self._run(move), name=name)

    def resume(self, partitions: Callable[[UUID, int], Partition | None]) -> None:
        """Starts moves again that the last process did not complete."""
        for topic_id, index, target in self._logs.unfinished_moves:
            partition = partitions(topic_id, index)
            if partition is not None and partition.is_usable:
                try:
                    self.move(partition, target)
                except ReplicaNotMovable as error:
                    LOGGER.warning("could not resume a move: %s", error)
        self._logs.unfinished_moves.clear()

    async def stop(self) -> None:
        """Cancels moves, except those about to complete; the next start begins them again."""
        for move in list(self.moves.values()):
            assert move.task is not None
            if move.is_arriving:
                await move.task
            else:
                move.future = None
                move.task.cancel()

    async def _run(self, move: Move) -> None:
        partition, target = move.partition, move.target
        name, is_done = partition.topic_partition, False
        try:
            async with self._copies:
                is_done = await self._copy_and_swap(move)
        except DiskFailed as error:
            for directory in (target, partition.directory):
                if directory is not None and directory.path == error.log_dir:
                    directory.fail(error)
            LOGGER.error("could not move %s to %s: %s", name, target.path, error)
        except LograftError as error:
            LOGGER.error("could not move %s to %s: %s", name, target.path, error)
        finally:
            if self.moves.get(partition) is move:
                del self.moves[partition]
            if not is_done and move.future is not None:
                self._drop(move.future, target)
        if is_done:
            LOGGER.info("moved %s to %s", name, target.path)

    def _drop(self, future: Log, target: LogDirectory) -> None:
        future.close(clean=False)
        due_ms = self._runtime.clock.mono_ms()
        self._logs.doomed.append((due_ms, target, future.directory))

    # ── copying ──────────────────────────────────────────────────────────────────────────────

    async def _copy_and_swap(self, move: Move) -> bool:
        partition, target = move.partition, move.target
        log = partition.log
        if log is None or not await self._wait_movable(partition):
            return False
        move.future = await self._runtime.workers.run(
            partial(
                open_at,
                self._disk,
                f"{target.path}/{self._unique(future_directory_name, partition)}",
                partition.topic_partition,
                topic_id=partition.topic_id,
                config=partition.config,
                now_ms=self._runtime.clock.wall_ms(),
            )
        )
        while await self._wait_movable(partition):
            await self._copy(partition, log, move.future)
            if await self._swap(move, log, move.future):
                return True
        return False

    async def _wait_movable(self, partition: Partition) -> bool:
        """Waits until the log is not being truncated and the mode not being switched. Returns False
        if the partition was deleted or is offline."""
        while not partition.is_deleted and not partition.offline:
            if _can_move(partition):
                return True
            await asyncio.sleep(PAUSE_MS / 1000)
        return False

    def _unique(self, name: Callable[..., str], partition: Partition) -> str:
        return name(partition.topic_partition, self._runtime.randomness.uuid())

    async def _copy(self, partition: Partition, log: Log, future: Log) -> None:
        """Copies until the copy has almost caught up. If the log is truncated, starts again."""
        truncations, unflushed = -1, 0
        while _can_move(partition):
            if log.truncations != truncations or future.end_offset < log.log_start_offset:
                truncations = log.truncations
                await self._begin_at(future, log.log_start_offset)
            while self.throttle.is_exceeded(now_ms=self._runtime.clock.mono_ms()):
                await asyncio.sleep(PAUSE_MS / 1000)
            count = await self._copy_some(log, future)
            unflushed += count
            is_near = count < COPY_BYTES and log.truncations == truncations
            if unflushed >= FLUSH_BYTES or (is_near and unflushed):
                plan = future.flush_plan()
                await self._runtime.workers.run(plan.run)
                future.mark_durable(plan)
                unflushed = 0
            if is_near:
                return

    async def _begin_at(self, future: Log, offset: Offset) -> None:
        now_ms = self._runtime.clock.wall_ms()
        job = partial(future.truncate_fully_and_start_at, offset, now_ms=now_ms)
        await self._runtime.workers.run(job)

    async def _copy_some(self, log: Log, future: Log) -> int:
        """Copies the next bytes and returns their number."""
        truncations = log.truncations
        try:
            piece = log.read(future.end_offset, bytes_max=COPY_BYTES)
        except OffsetOutOfRange:
            return COPY_BYTES  # Its start was deleted, or its end truncated: check again.
        if piece is None:
            return 0
        job = partial(piece.file.pread, piece.size, piece.position)
        try:
            data = await self._runtime.workers.run(job)
        except OSError as error:
            raise log.fail_with(error) from error
        if log.truncations != truncations:
            return COPY_BYTES
        try:
            self._append(future, data)
        except BeginsInsideBatch as found:
            await self._begin_at(future, found.base)
            self._append(future, data)
        self.throttle.record(len(data), now_ms=self._runtime.clock.mono_ms())
        return len(data)

    def _append(self, future: Log, data: bytes) -> None:
        future.append_as_follower(memoryview(data), now_ms=self._runtime.clock.wall_ms())

    # ── swapping the folders ─────────────────────────────────────────────────────────────────

    async def _swap(self, move: Move, log: Log, future: Log) -> bool:
        """Replaces the log by its copy. Returns False if the log was truncated before that."""
        partition, source = move.partition, move.partition.directory
        assert source is not None
        async with source.segment_lock:
            if not _can_move(partition):
                return False
            move.is_arriving = True
            partition.begin_move(KeptOffsets(log.durable_offset, log.log_start_offset))
            is_voter = self._voters.pause(partition)
            is_moved = False
            try:
                if await self._copy_rest(log, future):
                    await self._exchange(move, source, log, future, is_voter=is_voter)
                    is_moved = True
            finally:
                move.is_arriving = False
                move.target.kept.pop(partition.topic_partition, None)
                if not partition.offline or not is_voter:
                    partition.end_move(
                        partial(self._voters.resume, partition, is_moved=is_moved)
                        if is_voter
                        else None
                    )
        return is_moved

    async def _exchange(
        self, move: Move, source: LogDirectory, log: Log, future: Log, *, is_voter: bool
    ) -> None:
        partition, target, workers = move.partition, move.target, self._runtime.workers
        name = partition.topic_partition
        target.kept[name] = KeptOffsets(future.end_offset, log.log_start_offset)
        await workers.run(partial(future.close, clean=True), lane=target.path)
        # Before the copy gets its name, since an older log of this name may have been here.
        await self._logs.write_checkpoints(target)
        past: tuple[UUID, ...] = ()
        if is_voter:
            ids = source.directory_id, target.directory_id
            past = past_directories(partition.past_directories, *ids)
            await workers.run(partial(_name_past, self._disk, future, past), lane=target.path)
            await self._voters.carry_votes(partition, target)
        doomed = f"{source.path}/{self._unique(deleted_directory_name, partition)}"
        goal = target.directory_id if is_voter else None
        job = partial(_exchange, self._disk, log, future, target.path, doomed, goal)
        try:
            copy = await workers.run(job, lane=source.path)
        except LograftError as error:
            if is_voter and not partition.is_deleted:
                # Only the next start can find out which folder is the replica.
                partition.on_offline(f"its move to {target.path} failed: {error}")
            raise
        self._switch_to_copy(partition, log, copy, target, past)
        due_ms = self._runtime.clock.mono_ms() + partition.config.file_delete_delay_ms
        self._logs.doomed.append((due_ms, source, doomed))

    async def _copy_rest(self, log: Log, future: Log) -> bool:
        """Copies the rest while appends wait. Returns False if the log was truncated."""
        if not log.log_start_offset <= future.end_offset <= log.end_offset:
            return False
        while await self._copy_some(log, future):
            pass
        return future.end_offset == log.end_offset

    def _switch_to_copy(
        self,
        partition: Partition,
        log: Log,
        copy: Log,
        target: LogDirectory,
        past_directories: tuple[UUID, ...],
    ) -> None:
        source, name = partition.directory, partition.topic_partition
        assert source is not None
        log.switch_to_copy(copy)
        source.log_count -= 1
        target.log_count += 1
        if name in source.cleaner_offsets:
            target.cleaner_offsets[name] = source.cleaner_offsets.pop(name)
        source.changes += 1
        target.changes += 1
        partition.on_moved(target, past_directories)
        self._logs.on_partition_opened(partition, target)


def _can_move(partition: Partition) -> bool:
    """Whether the log can be moved. While the mode is being switched, the switch depends on the log
    in its present log dir."""
    modes = ReplicationMode.ISR, ReplicationMode.RAFT
    return partition.is_usable and partition.assignment.mode in modes


def _name_past(disk: Disk, future: Log, past: Sequence[UUID]) -> None:
    """Writes the past directories to the copy; runs in a worker."""
    path = f"{future.log_dir}/{directory_name(future.topic_partition)}"
    if disk.exists(path):
        # Checked now, since it would take the replica offline later.
        raise ReplicaNotMovable(f"{path} already exists: remove it")
    try:
        write_moved_from(disk, future.directory, past)
    except OSError as error:
        raise DiskFailed(future.log_dir, error) from error


def _exchange(
    disk: Disk, log: Log, future: Log, log_dir: str, doomed: str, goal: UUID | None
) -> Log:
    """Renames both folders and returns the copy under its final name; runs in a worker. `goal` is
    the id of the target log dir if the replica must never exist twice."""
    path = f"{log_dir}/{directory_name(log.topic_partition)}"
    if goal is not None:
        try:
            write_moving_to(disk, log.directory, goal)
        except OSError as error:
            raise DiskFailed(log.log_dir, error) from error
    rename_logs(disk, log_dir, [(future.directory, path)])
    copy = Log.open(
        disk,
        path,
        topic_partition=log.topic_partition,
        topic_id=log.topic_id,
        config=log.config,
        now_ms=0,
        recovery=RecoveryPlan(clean=True, recovery_point=future.end_offset),
    )
    rename_logs(disk, log.log_dir, [(log.directory, doomed)])
    return copy
