"""Tests of a query that is slower than retention: it loses unread records unless it holds them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lograft.client.admin import ConfigChange, topic_resource
from lograft.client.blocking import Admin
from lograft.spark.spark_versions import LIMITS_BATCHES
from tests.compatibility.servers import Server
from tests.spark.conftest import SETTINGS
from tests.spark.topics import TIMEOUT_SECONDS, Topics

pytestmark = pytest.mark.skipif(
    not LIMITS_BATCHES,
    reason="micro-batches of PySpark 4.1 have no limit, so no records stay unread",
)
RECORDS = 100
GROUP = "lake"
#: Two topics with the same records and retention; the second allows no holds.
TOPIC, UNHELD = "orders", "unheld"


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    settings = {**SETTINGS, "log.retention.check.interval.ms": "100"}
    with (
        Server.of("lograft", tmp_path / "node", settings=settings).started() as node,
        Topics(node.bootstrap) as client,
    ):
        client.create(TOPIC, 1, **{"retention.hold.groups": f"other,{GROUP}"})
        client.create(UNHELD, 1)
        for topic in (TOPIC, UNHELD):
            client.fill(topic, map(str, range(RECORDS)))
        yield client


def expire_records(topics: Topics) -> None:
    """Sets retention.ms to 1 and waits until the second topic is empty: a retention check covers
    both topics."""
    with Admin(bootstrap_servers=topics.bootstrap) as admin:
        for topic in (TOPIC, UNHELD):
            admin.alter_configs({topic_resource(topic): [ConfigChange("retention.ms", "1")]})
    wait_emptied(topics, UNHELD)


def log_start(topics: Topics, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "unused"})
    try:
        watermarks = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_SECONDS)
        assert watermarks is not None
        return watermarks[0]
    finally:
        consumer.close()


def wait_emptied(topics: Topics, topic: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while log_start(topics, topic) < RECORDS:
        assert time.monotonic() < deadline, f"retention did not empty {topic} in time"
        time.sleep(0.1)


def start(
    spark: SparkSession, topics: Topics, folder: Path, on_first: Callable[[], None], **options: str
) -> tuple[StreamingQuery, list[int]]:
    """Starts a query with small batches, which calls `on_first` in the first batch. Returns the
    query and the list of offsets that it reads."""
    offsets: list[int] = []

    def collect_offsets(batch: DataFrame, number: int) -> None:
        offsets.extend(row.offset for row in batch.select("offset").collect())
        if number == 0:
            on_first()

    stream = spark.readStream.format("lograft").options(
        subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=10, **options
    )
    frame = stream.option("kafka.bootstrap.servers", topics.bootstrap).load()
    writer = frame.writeStream.foreachBatch(collect_offsets)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(), offsets


def test_hold_keeps_unread_records_of_a_slow_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    def on_first() -> None:
        expire_records(topics)
        with Admin(bootstrap_servers=topics.bootstrap) as admin:
            (hold,) = admin.list_retention_holds(now_ms=int(time.time() * 1000))
        assert (hold.topic, hold.group, hold.offset) == (TOPIC, GROUP, 0)
        assert hold.records_kept == RECORDS

    hold = {"progressGroup": GROUP, "retentionHold": "10m"}
    query, offsets = start(spark, topics, tmp_path, on_first, **hold)
    assert query.awaitTermination(TIMEOUT_SECONDS * 4)
    assert offsets == list(range(RECORDS))
    wait_emptied(topics, TOPIC)


def test_slow_query_without_a_hold_loses_records(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    def on_first() -> None:
        expire_records(topics)
        wait_emptied(topics, TOPIC)

    query, offsets = start(spark, topics, tmp_path, on_first, progressGroup=GROUP)
    with pytest.raises(PySparkException, match="offsets 10 to 99 were deleted"):
        query.awaitTermination(TIMEOUT_SECONDS * 4)
    assert offsets == list(range(10))


def test_hold_that_the_topic_does_not_allow_is_rejected(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    query, offsets = start(
        spark, topics, tmp_path, lambda: None, progressGroup="stranger", retentionHold="1m"
    )
    with pytest.raises(
        PySparkException, match="does not allow group 'stranger' to hold its records"
    ):
        query.awaitTermination(TIMEOUT_SECONDS * 4)
    assert offsets == []
