"""Records for partitions that their topic does not have.

Some brokers make such a partition when somebody produces to it, so the first batch is sent to
one that leads other partitions of the topic. If it does not know what to do with it, or none is
there, the records wait for metadata that has the partition; max.block.ms later they fail.
"""

from collections.abc import Iterable
from typing import Any

from lograft.client.core import ClientCore
from lograft.client.errors import TimedOut
from lograft.client.producing.accumulator import PartitionQueue


class Growth:
    def __init__(self, core: ClientCore[Any]) -> None:
        self._core = core

    def leader_of(self, queue: PartitionQueue) -> int | None:
        """The broker to send a partition's batches to; None: nobody now."""
        topic = self._core.metadata.cache.topic(queue.topic)
        if topic is None:
            return None
        partition = topic.partition(queue.partition)
        brokers = self._core.network.brokers
        if partition is not None:
            queue.missing_until_ms = None
            queue.has_asked_for_growth = False
            return partition.leader if partition.leader in brokers else None
        if queue.missing_until_ms is None or queue.has_asked_for_growth:
            return None
        return next((one.leader for one in topic.partitions if one.leader in brokers), None)

    def given_up(self, queues: Iterable[PartitionQueue], now_ms: int) -> list[PartitionQueue]:
        """Those that are still missing when their time is up."""
        return [
            queue
            for queue in queues
            if queue.missing_until_ms is not None
            and now_ms >= queue.missing_until_ms
            and self._core.metadata.cache.partition(queue.topic, queue.partition) is None
        ]

    def refusal(self, queue: PartitionQueue) -> TimedOut:
        topic = self._core.metadata.cache.topic(queue.topic)
        count = 0 if topic is None else len(topic.partitions)
        reason = queue.batches[0].last_error
        return TimedOut(
            f"topic {queue.topic!r} has {count} partitions, so there is no partition"
            f" {queue.partition}, and none has come within max.block.ms"
            + (f"; the broker: {reason}" if reason else "")
        )
