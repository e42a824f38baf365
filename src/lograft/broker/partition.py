"""One partition on this broker: its log, who leads it, and who waits for it.

Append and read are synchronous and whole: nothing else runs between their check and their act.
What must wait is named `wait_…`.

A partition is in the table as soon as the metadata image names it, before its files exist: until
a worker has opened the log, requests get PartitionOpening and wait for it (`wait_open`).
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from lograft.broker.errors import (
    FencedLeaderEpoch,
    NotLeader,
    PartitionOffline,
    PartitionOpening,
    UnknownLeaderEpoch,
    WaitTimedOut,
)
from lograft.broker.log_directory import LogDirectory
from lograft.broker.waiting import FetchWait
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.seams import FileSlice
from lograft.model.topic_configs import TopicConfig
from lograft.model.types import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset, TopicPartition
from lograft.replication.leader import LeaderRule, SoleReplica
from lograft.storage.log import Log
from lograft.storage.types import AppendResult, Origin

#: flush.messages and flush.ms at or above this mean "never": Kafka's default is the largest long.
FLUSH_NEVER: Final = 1 << 62


class KeptOffsets(NamedTuple):
    """Checkpoint entries of a log that cannot be asked: it could not be opened, or is being cut."""

    recovery_point: Offset
    log_start: Offset


class Partition:
    __slots__ = (
        "_commit_waits",
        "_flush_messages",
        "_flush_ms",
        "_flush_timer",
        "_flushes",
        "_open_waits",
        "_rolled_requested",
        "_uncommitted_bytes",
        "config",
        "deleted",
        "directory",
        "during_cut",
        "fetch_waits",
        "index",
        "leader_epoch",
        "leader_id",
        "leads",
        "log",
        "me",
        "offline",
        "partition_epoch",
        "rule",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, index: int, *, topic_id: UUID, me: NodeId, config: TopicConfig
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.me = me
        self.config = config
        self.leader_id = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.leads = False
        self.deleted = False
        #: Why nothing can be read or written here any more; empty while all is well.
        self.offline = ""
        #: None while a worker opens it.
        self.log: Log | None = None
        self.directory: LogDirectory | None = None
        #: What the checkpoints shall say while a worker cuts the log and owns it alone.
        self.during_cut: KeptOffsets | None = None
        #: The commit rule; its high watermark means nothing before the log is open.
        self.rule: LeaderRule = SoleReplica(end=Offset(0), durable=Offset(0), durable_only=False)
        self.fetch_waits: dict[FetchWait, None] = {}
        self._commit_waits: list[tuple[Offset, asyncio.Future[None]]] = []
        self._open_waits: list[asyncio.Future[None]] = []
        #: Bytes appended above the high watermark, told to long polls once it moves.
        self._uncommitted_bytes = 0
        self._flush_timer: asyncio.TimerHandle | None = None
        #: The number of the last unflushed file for which a flush was asked.
        self._rolled_requested = 0
        self._set_flush_policy()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def high_watermark(self) -> Offset:
        return self.rule.high_watermark

    @property
    def is_usable(self) -> bool:
        """Whether flushes, retention and compaction may use the log."""
        return (
            self.log is not None
            and not self.offline
            and not self.deleted
            and self.during_cut is None
        )

    @property
    def flush_before_ack(self) -> bool:
        return self._flush_messages == 1

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch}>"

    # The life of the partition: told by the metadata image and by the log manager.

    def on_opened(self, log: Log, directory: LogDirectory) -> None:
        assert self.log is None, self
        # The settings may have changed while a worker opened it.
        log.config = self.config
        self.log = log
        self.directory = directory
        self.rule = SoleReplica(
            end=log.end_offset, durable=log.durable_offset, durable_only=self.flush_before_ack
        )
        waits, self._open_waits = self._open_waits, []
        for future in waits:
            if not future.done():
                future.set_result(None)

    def on_leader_changed(
        self, leader_id: NodeId, leader_epoch: Epoch, partition_epoch: int
    ) -> None:
        """Whoever waits on an older leadership is sent to look for the new one."""
        self.partition_epoch = partition_epoch
        if (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            return
        assert leader_epoch >= self.leader_epoch, (self, leader_epoch)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.leads = leader_id == self.me
        self._dismiss(lambda: NotLeader(f"{self.topic_partition} has a new leader"))

    def on_config_changed(self, config: TopicConfig) -> None:
        self.config = config
        self._set_flush_policy()
        log = self.log
        if log is None:
            return
        log.config = config
        if self.rule.require_durable(self.flush_before_ack, end=log.end_offset):
            self._tell_committed()
        if self.flush_before_ack and log.durable_offset < log.end_offset:
            self._request_flush()

    def on_deleted(self) -> None:
        self.deleted = True
        self.leads = False
        self._cancel_flush_timer()
        self._dismiss(lambda: NotLeader(f"{self.topic_partition} was deleted"))

    def on_offline(self, reason: str) -> None:
        """Its log dir failed, or its log could not be opened: final until a restart."""
        self.offline = reason
        self._cancel_flush_timer()
        self._dismiss(lambda: PartitionOffline(reason))

    def on_disk_failed(self, error: DiskFailed) -> None:
        """Whoever meets a failing disk in this partition's log tells it here."""
        if self.directory is not None:
            self.directory.fail(error)

    def _dismiss(self, make_error: Callable[[], LograftError]) -> None:
        commits, self._commit_waits = self._commit_waits, []
        for _, future in commits:
            if not future.done():
                future.set_exception(make_error())
        opens, self._open_waits = self._open_waits, []
        for future in opens:
            if not future.done():
                future.set_result(None)
        for wait in list(self.fetch_waits):
            wait.wake()

    # Reading and writing.

    def leader_log(self) -> Log:
        """The log, if this node may serve it as its leader."""
        log = self.log
        if not self.leads:
            raise NotLeader(f"{self.topic_partition} is led by {self.leader_id}")
        if self.offline:
            raise PartitionOffline(self.offline)
        if log is None:
            raise PartitionOpening(f"{self.topic_partition} is being opened")
        return log

    def check_epoch(self, epoch: int) -> None:
        """`epoch` is the leader epoch a client knows; -1 if it does not say."""
        if epoch == self.leader_epoch or epoch == NO_EPOCH:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} is older than {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"epoch {epoch} is newer than {self.leader_epoch}")

    def append(
        self, batches: memoryview, *, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Writes to the page cache and moves the high watermark as the commit rule allows."""
        log = self.leader_log()
        directory = self.directory
        assert directory is not None
        try:
            result = log.append_as_leader(
                batches, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
            )
        except DiskFailed as error:
            self.on_disk_failed(error)
            raise
        directory.changes += 1
        if self.rule.on_appended(log.end_offset):
            if self.fetch_waits or self._commit_waits:
                self._uncommitted_bytes += len(batches)
                self._tell_committed()
        else:
            self._uncommitted_bytes += len(batches)
        if log.unflushed_files:
            self._flush_rolled(log, directory)
        if self._flushes:
            self._consider_flush(log)
        return result

    def read(
        self, offset: Offset, *, bytes_max: int, bound: Offset, at_least_one: bool
    ) -> FileSlice | None:
        log = self.leader_log()
        try:
            return log.read(offset, bytes_max=bytes_max, bound=bound, at_least_one=at_least_one)
        except DiskFailed as error:
            self.on_disk_failed(error)
            raise

    @property
    def last_stable_offset(self) -> Offset:
        """No record below it belongs to an open transaction; at most the high watermark."""
        log = self.log
        high_watermark = self.rule.high_watermark
        return high_watermark if log is None else log.last_stable_offset(high_watermark)

    def advance_log_start(self, to: Offset) -> Offset:
        """DeleteRecords; returns the new log start."""
        log = self.leader_log()
        directory = self.directory
        assert directory is not None
        log.advance_start(to)
        directory.changes += 1
        return log.log_start_offset

    # Flushing: the directory's flusher fsyncs for many partitions at once.

    def on_durable(self) -> None:
        """The flusher has marked the log durable up to some offset."""
        log = self.log
        assert log is not None
        if self.rule.on_durable(log.durable_offset):
            self._tell_committed()
        if self._flushes and log.durable_offset < log.end_offset:
            self._consider_flush(log)

    def _set_flush_policy(self) -> None:
        messages, period_ms = self.config.flush_messages, self.config.flush_ms
        self._flush_messages = messages if messages < FLUSH_NEVER else 0
        self._flush_ms = period_ms if period_ms < FLUSH_NEVER else -1
        self._flushes = self._flush_messages > 0 or self._flush_ms >= 0

    def _consider_flush(self, log: Log) -> None:
        unflushed = log.end_offset - log.durable_offset
        if self._flush_messages and unflushed >= self._flush_messages:
            self._request_flush()
        elif self._flush_ms >= 0 and unflushed and self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(
                self._flush_ms / 1000, self._request_flush
            )

    def _flush_rolled(self, log: Log, directory: LogDirectory) -> None:
        """Rolled segments shall not stay unflushed for long, or recovery would take long."""
        newest = log.unflushed_files[-1][0]
        if newest != self._rolled_requested:
            self._rolled_requested = newest
            directory.flusher.request_rolled(self)

    def _request_flush(self) -> None:
        self._cancel_flush_timer()
        if self.directory is not None and not self.deleted:
            self.directory.flusher.request(self)

    def _cancel_flush_timer(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    # Waiting.

    def _tell_committed(self) -> None:
        """The high watermark moved."""
        count, self._uncommitted_bytes = self._uncommitted_bytes, 0
        for wait in list(self.fetch_waits):
            wait.add(count)
        if self._commit_waits:
            reached = self.rule.high_watermark
            waiting = []
            for entry in self._commit_waits:
                if entry[0] > reached:
                    waiting.append(entry)
                elif not entry[1].done():
                    entry[1].set_result(None)
            self._commit_waits = waiting

    def is_committed(self, end: Offset) -> bool:
        return end <= self.rule.high_watermark

    async def wait_committed(self, end: Offset, *, timeout_ms: int) -> None:
        """Until everything below `end` is committed in the leadership that appended it."""
        if end <= self.rule.high_watermark:
            return
        future = asyncio.get_running_loop().create_future()
        self._commit_waits.append((end, future))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            raise WaitTimedOut(f"not committed within {timeout_ms} ms") from None
        finally:
            if not future.done() or future.cancelled():
                self._commit_waits = [w for w in self._commit_waits if w[1] is not future]

    async def wait_open(self, *, timeout_ms: int) -> None:
        """Until the log is open, or cannot be opened, or the time is over: look again."""
        if self.log is not None or self.offline or self.deleted:
            return
        future = asyncio.get_running_loop().create_future()
        self._open_waits.append(future)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            pass
