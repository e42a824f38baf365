"""Records for partitions that are not in the topic's metadata.

Some brokers create such a partition when a producer writes to it, so the first batch is sent to a
broker that leads other partitions of the topic. If that broker rejects it, or no partition has a
leader, the records wait until metadata contains the partition, at most for max.block.ms.
"""

from collections.abc import Iterable
from typing import Any

from lograft.client.core import ClientCore
from lograft.client.errors import TimedOut
from lograft.client.producing.accumulator import PartitionQueue


class MissingPartitions:
    """Finds a broker for every partition, and the partitions that never appeared."""

    def __init__(self, core: ClientCore[Any]) -> None:
        self._core = core

    def leader_of(self, queue: PartitionQueue) -> int | None:
        """Returns the broker to send the partition's batches to, or None if there is none now."""
        topic = self._core.metadata.cache.topic(queue.topic)
        if topic is None:
            return None
        partition = topic.partition(queue.partition)
        brokers = self._core.network.brokers
        if partition is not None:
            queue.missing_until_ms = None
            queue.has_requested_creation = False
            return partition.leader if partition.leader in brokers else None
        if queue.missing_until_ms is None or queue.has_requested_creation:
            return None
        leaders = (partition.leader for partition in topic.partitions)
        return next((leader for leader in leaders if leader in brokers), None)

    def find_expired(self, queues: Iterable[PartitionQueue], now_ms: int) -> list[PartitionQueue]:
        """Returns the queues whose partition is still missing after max.block.ms."""
        return [
            queue
            for queue in queues
            if queue.missing_until_ms is not None
            and now_ms >= queue.missing_until_ms
            and self._core.metadata.cache.partition(queue.topic, queue.partition) is None
        ]

    def expiry_error(self, queue: PartitionQueue) -> TimedOut:
        topic = self._core.metadata.cache.topic(queue.topic)
        count = 0 if topic is None else len(topic.partitions)
        reason = queue.batches[0].last_error
        return TimedOut(
            f"topic {queue.topic!r} has {count} partitions, so there is no partition"
            f" {queue.partition}, and none appeared within max.block.ms"
            + (f"; last error: {reason}" if reason else "")
        )
