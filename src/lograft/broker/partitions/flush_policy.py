"""When a partition requests an fsync: after a number of records, after a time, or for each
acknowledgement.

The directory's flusher fsyncs for many partitions at once (broker/partitions/flusher.py).
"""

import asyncio
from typing import TYPE_CHECKING, Final

from lograft.model.settings.topic import TopicConfig
from lograft.model.types import ReplicationMode
from lograft.storage.log import Log

if TYPE_CHECKING:
    from lograft.broker.partitions.partition import Partition

#: flush.messages and flush.ms at or above this mean "never": Kafka's default is the largest long.
NEVER: Final = 1 << 62


class FlushPolicy:
    __slots__ = (
        "_messages",
        "_partition",
        "_period_ms",
        "_rolled_requested",
        "_timer",
        "before_ack",
        "is_on",
    )

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition
        self._timer: asyncio.TimerHandle | None = None
        #: Number of the last unflushed file for which a flush was requested.
        self._rolled_requested = 0
        self.set(partition.config, partition.assignment.mode)

    def set(self, config: TopicConfig, mode: ReplicationMode) -> None:
        messages, period_ms = config.flush_messages, config.flush_ms
        self._messages = messages if messages < NEVER else 0
        if mode is not ReplicationMode.ISR:
            # Only records on disk count, so fetches and acknowledgements wait for the flush.
            self._messages = 1
        self._period_ms = period_ms if period_ms < NEVER else -1
        #: Whether appends can require a flush at all.
        self.is_on = self._messages > 0 or self._period_ms >= 0
        self.before_ack = self._messages == 1

    def consider(self, log: Log) -> None:
        """Requests or schedules a flush after an append or an earlier flush."""
        unflushed = log.end_offset - log.durable_offset
        if self._messages and unflushed >= self._messages:
            self._request()
        elif self._period_ms >= 0 and unflushed and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._period_ms / 1000, self._request)

    def consider_rolled(self, log: Log) -> None:
        """Requests a flush of rolled segments, since unflushed ones would slow down recovery."""
        newest = log.unflushed_files[-1][0]
        directory = self._partition.directory
        if newest != self._rolled_requested and directory is not None:
            self._rolled_requested = newest
            directory.flusher.request_rolled(self._partition)

    def request(self) -> None:
        """Requests an fsync of everything appended so far."""
        log = self._partition.log
        if log is not None and log.durable_offset < log.end_offset:
            self._request()

    def _request(self) -> None:
        self.cancel()
        partition = self._partition
        if partition.directory is not None and not partition.is_deleted:
            partition.directory.flusher.request(partition)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
