"""The source in Spark: tables, streams that go on where they were, conditions pushed down."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lograft.spark.spark_versions import LIMITS_BATCHES
from tests.spark.topics import PATIENCE_SECONDS, Topics

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


def test_a_table_has_every_column_of_every_record(batch: Batch, topics: Topics, topic: str) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x01"), ("empty", None)]
    producer.produce(topic, key="k", value="v", partition=1, timestamp=123, headers=headers)
    producer.produce(topic, key=None, value=None, partition=1, timestamp=456)
    producer.flush(PATIENCE_SECONDS)
    frame = batch(includeHeaders="true").selectExpr("*", "unix_millis(timestamp) ms")
    first, second = frame.orderBy("offset").collect()
    assert bytes(first.key) == b"k"
    assert bytes(first.value) == b"v"
    assert (first.topic, first.partition, first.offset, first.ms) == (topic, 1, 0, 123)
    assert first.timestampType == 0
    assert [(one.key, one.value) for one in first.headers] == [
        ("trace", bytearray(b"\x01")),
        ("empty", None),
    ]
    assert (second.key, second.value, second.headers, second.ms) == (None, None, None, 456)
    assert batch(columns="offset,value").columns == ["offset", "value"]


def test_wrong_options_are_named(batch: Batch) -> None:
    with pytest.raises(PySparkException, match="did you mean minPartitions"):
        batch(minPartition=3)


def test_conditions_leave_partitions_and_offsets_unread(
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
            young = batch().filter("timestamp > timestamp_millis(2000)")
            assert young.count() == 100
            assert young.rdd.getNumPartitions() == tasks
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_does_not_go_on_in_another_topic_of_the_same_name(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    def run(**options: str) -> int:
        """All that is there; how many records came."""
        stream = spark.readStream.format("lograft").option("subscribe", topic)
        stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
        frame = stream.options(startingOffsets="earliest", **options).load()
        writing = frame.writeStream.format("noop")
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_SECONDS * 4)
        return sum(one["numInputRows"] for one in query.recentProgress)

    topics.fill(topic, numbered(100))
    assert run() == 100
    topics.delete(topic)
    topics.create(topic, 2)
    # More than there was: its offsets alone do not tell.
    topics.fill(topic, numbered(1_000))
    with pytest.raises(PySparkException, match="was deleted and created again"):
        run()
    assert run(failOnDataLoss="false") == 1_000
    assert run() == 0


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    def run() -> int:
        """All that is there; how many micro-batches brought something."""
        stream = spark.readStream.format("lograft").option("subscribe", topic)
        stream = stream.option("kafka.bootstrap.servers", topics.bootstrap)
        frame = stream.options(startingOffsets="earliest", maxOffsetsPerTrigger=300).load()
        writing = frame.selectExpr("cast(value as string) v").writeStream.format("parquet")
        writing = writing.option("path", str(tmp_path / "out"))
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_SECONDS * 4)
        return sum(one["numInputRows"] > 0 for one in query.recentProgress)

    topics.fill(topic, numbered(500))
    assert run() == (2 if LIMITS_BATCHES else 1)
    topics.fill(topic, numbered(100, 500))
    assert run() == 1
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.v for row in rows) == numbered(600)
