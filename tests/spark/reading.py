"""Reads topics with another client: librdkafka."""

import time

from confluent_kafka import Consumer, TopicPartition

from tests.spark.topics import TIMEOUT_SECONDS, Topics


def read_committed_values(topics: Topics, topic: str, partitions: int) -> list[str]:
    """Returns all values that a read_committed consumer reads, sorted."""
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
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "did not reach the ends of the partitions in time"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append((message.value() or b"").decode())
    consumer.close()
    return sorted(found)
