"""Tests of the source in Spark: batches, streams that resume, filter pushdown."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lograft.spark.spark_versions import LIMITS_BATCHES
from tests.spark.topics import TIMEOUT_SECONDS, Topics

NewTopic = Callable[..., str]
Batch = Callable[..., DataFrame]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(2)


@pytest.fixture
def batch(spark: SparkSession, topics: Topics, topic: str) -> Batch:
    def read(**options: str | int) -> DataFrame:
        base: dict[str, str | int] = {"kafka.bootstrap.servers": topics.bootstrap}
        return spark.read.format("lograft").options(**base, subscribe=topic, **options).load()

    return read


def numbered(count: int, since: int = 0) -> list[str]:
    return [f"{number:06}" for number in range(since, since + count)]


def test_batch_has_every_column_of_every_record(batch: Batch, topics: Topics, topic: str) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x01"), ("empty", None)]
    producer.produce(topic, key="k", value="v", partition=1, timestamp=123, headers=headers)
    producer.produce(topic, key=None, value=None, partition=1, timestamp=456)
    producer.flush(TIMEOUT_SECONDS)
    frame = batch(includeHeaders="true").selectExpr("*", "unix_millis(timestamp) ms")
    first, second = frame.orderBy("offset").collect()
    assert bytes(first.key) == b"k"
    assert bytes(first.value) == b"v"
    assert (first.topic, first.partition, first.offset, first.ms) == (topic, 1, 0, 123)
    assert first.timestampType == 0
    assert [(header.key, header.value) for header in first.headers] == [
        ("trace", bytearray(b"\x01")),
        ("empty", None),
    ]
    assert (second.key, second.value, second.headers, second.ms) == (None, None, None, 456)
    assert batch(columns="offset,value").columns == ["offset", "value"]


def test_error_suggests_the_option_that_was_meant(batch: Batch) -> None:
    with pytest.raises(PySparkException, match="did you mean minPartitions"):
        batch(minPartition=3)


def test_filters_restrict_partitions_and_offsets(
    batch: Batch, topics: Topics, topic: str, spark: SparkSession
) -> None:
    topics.fill(topic, numbered(100), partition=0, timestamp_ms=1_000)
    topics.fill(topic, numbered(100, 100), partition=1, timestamp_ms=5_000)
    for is_pushed, tasks in (("false", 2), ("true", 1)):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", is_pushed)
        try:
            frame = batch().filter("partition = 1 and offset between 10 and 19")
            assert frame.count() == 10
            assert frame.rdd.getNumPartitions() == tasks
            recent = batch().filter("timestamp > timestamp_millis(2000)")
            assert recent.count() == 100
            assert recent.rdd.getNumPartitions() == tasks
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_stream_does_not_continue_in_a_recreated_topic(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    def run(**options: str) -> int:
        """Reads all available records and returns their number."""
        stream = spark.readStream.format("lograft").option("subscribe", topic)
        stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
        frame = stream.options(startingOffsets="earliest", **options).load()
        writer = frame.writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_SECONDS * 4)
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    topics.fill(topic, numbered(100))
    assert run() == 100
    topics.delete(topic)
    topics.create(topic, 2)
    # More records than before, so the offsets alone do not show that the topic is a new one.
    topics.fill(topic, numbered(1_000))
    with pytest.raises(PySparkException, match="was deleted and recreated"):
        run()
    assert run(failOnDataLoss="false") == 1_000
    assert run() == 0


def test_stream_resumes_from_its_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    def run() -> int:
        """Reads all available records and returns the number of micro-batches with records."""
        stream = spark.readStream.format("lograft").option("subscribe", topic)
        stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
        frame = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger=300).load()
        writer = frame.selectExpr("cast(value as string) v").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_SECONDS * 4)
        return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)

    topics.fill(topic, numbered(500))
    assert run() == (2 if LIMITS_BATCHES else 1)
    topics.fill(topic, numbered(100, 500))
    assert run() == 1
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.v for row in rows) == numbered(600)
