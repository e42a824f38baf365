"""Topics of a run; each of them exercises a different part of the storage."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from lograft.model.types import TopicPartition
from tests.chaos.raw_client import RawClient

RETENTION_BYTES: Final = 400_000
SEGMENT_BYTES: Final = 60_000


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: int = 1
    configs: dict[str, str] = field(default_factory=dict)
    value_bytes: int = 60
    #: Number of different keys; 0 for records without a key.
    keys: int = 0
    retention_bytes: int = 0
    #: Whether records are fsynced before they are acknowledged.
    durable: bool = False

    def of_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(self.partitions)]


PLAIN: Final = Topic("plain", 3)
FLUSHED: Final = Topic("flushed", 2, {"flush.messages": "1"}, durable=True)
COMPACTED: Final = Topic(
    "compacted",
    2,
    {
        "cleanup.policy": "compact",
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "100",
        "index.interval.bytes": "500",
    },
    value_bytes=200,
    keys=30,
)
#: Rolls a segment every few hundred records, and continuously deletes the oldest.
EXPIRING: Final = Topic(
    "expiring",
    2,
    {
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "retention.bytes": str(RETENTION_BYTES),
        "file.delete.delay.ms": "100",
        "index.interval.bytes": "500",
    },
    value_bytes=400,
    retention_bytes=RETENTION_BYTES,
)
ROLLING: Final = Topic(
    "rolling",
    2,
    {
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "index.interval.bytes": "200",
        "message.timestamp.type": "LogAppendTime",
    },
    value_bytes=150,
)
ALL: Final = (PLAIN, FLUSHED, COMPACTED, EXPIRING, ROLLING)

#: Short intervals, so that background work happens often.
BUSY_NODE: Final = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}


def create(port: int, topics: Iterable[Topic]) -> None:
    with RawClient(port, name="setup") as client:
        for topic in topics:
            client.create_topic(topic.name, partitions=topic.partitions, configs=topic.configs)
