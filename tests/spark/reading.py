"""Reads topics with a client that is not ours: librdkafka."""

import time

from confluent_kafka import Consumer, TopicPartition

from tests.spark.topics import PATIENCE_SECONDS, Topics


def committed_values(topics: Topics, topic: str, partitions: int) -> list[str]:
    """All values that a reader of committed records sees, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the ends of the partitions were not reached"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append((message.value() or b"").decode())
    consumer.close()
    return sorted(found)
