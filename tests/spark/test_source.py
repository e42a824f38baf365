"""The source on a real node: what Spark reads is what a stock client wrote."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.topics import PATIENCE_SECONDS, Topics

NewTopic = Callable[..., str]


class Reading:
    """Queries over one topic."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, topic: str) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder
        self.topic = topic

    def batch(self, **options: str | int) -> DataFrame:
        base: dict[str, str | int] = {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "subscribe": self.topic,
        }
        return self.spark.read.format("lograft").options(**base | options).load()

    def values(self, **options: str | int) -> list[str]:
        rows = self.batch(**options).selectExpr("cast(value as string) v").collect()
        return sorted(row.v for row in rows)

    def run_stream(self, table: str, **options: str | int) -> list[dict[str, object]]:
        """Everything that is there now, behind what the last run of this table has seen; the
        reports of the micro-batches that brought rows."""
        base: dict[str, str | int] = {
            "kafka.bootstrap.servers": self.topics.bootstrap,
            "subscribe": self.topic,
        }
        stream = self.spark.readStream.format("lograft")
        query = (
            stream.options(**{"startingOffsets": "earliest"} | base | options)
            .load()
            .selectExpr("cast(value as string) v", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(self.folder / table))
            .option("checkpointLocation", str(self.folder / f"{table}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(PATIENCE_SECONDS)
        reports = [json.loads(one.json) for one in query.recentProgress]
        return [one for one in reports if one["numInputRows"]]

    def table(self, table: str) -> list[str]:
        return sorted(row.v for row in self.spark.read.parquet(str(self.folder / table)).collect())


@pytest.fixture
def reading(spark: SparkSession, topics: Topics, new_topic: NewTopic, tmp_path: Path) -> Reading:
    return Reading(spark, topics, tmp_path, new_topic(2))


def numbered(count: int, since: int = 0) -> list[str]:
    return [f"{number:06}" for number in range(since, since + count)]


def test_a_table_has_every_column_of_every_record(reading: Reading) -> None:
    producer = Producer({"bootstrap.servers": reading.topics.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x01"), ("empty", None)]
    producer.produce(reading.topic, key="k", value="v", partition=1, timestamp=123, headers=headers)
    producer.produce(reading.topic, key=None, value=None, partition=1, timestamp=456)
    producer.flush(PATIENCE_SECONDS)
    frame = reading.batch(includeHeaders="true")
    first, second = frame.orderBy("offset").collect()
    assert bytes(first.key) == b"k"
    assert bytes(first.value) == b"v"
    assert (first.topic, first.partition, first.offset) == (reading.topic, 1, 0)
    assert first.timestampType == 0
    assert [(one.key, one.value) for one in first.headers] == [
        ("trace", bytearray(b"\x01")),
        ("empty", None),
    ]
    assert (second.key, second.value, second.headers) == (None, None, None)
    times = frame.selectExpr("unix_millis(timestamp) t").collect()
    assert sorted(row.t for row in times) == [123, 456]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_codecs(reading: Reading, codec: str) -> None:
    values = numbered(3_000)
    reading.topics.fill(reading.topic, values, codec=codec)
    assert reading.values(columns="value") == values


def test_from_where_to_where(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0, timestamp_ms=1_000)
    reading.topics.fill(reading.topic, numbered(100, 100), partition=0, timestamp_ms=2_000)
    reading.topics.fill(reading.topic, numbered(10, 200), partition=1, timestamp_ms=3_000)
    where = json.dumps({reading.topic: {"0": 90, "1": -2}})
    until = json.dumps({reading.topic: {"0": 110, "1": 3}})
    assert reading.values(startingOffsets=where, endingOffsets=until) == [
        *numbered(20, 90),
        *numbered(3, 200),
    ]
    assert reading.values(startingTimestamp=2_000) == numbered(110, 100)
    assert reading.values(endingTimestamp=2_000) == [*numbered(100), *numbered(10, 200)][:100]
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert reading.values(startingTimestamp=2_500, **late) == numbered(10, 200)
    with pytest.raises(PySparkException, match="no record as young as 2500 ms"):
        reading.values(startingTimestamp=2_500)
    with pytest.raises(PySparkException, match=f"does not name {reading.topic}-1"):
        reading.values(startingOffsets=json.dumps({reading.topic: {"0": 0}}))


def test_wrong_options_and_topics_are_named(reading: Reading) -> None:
    with pytest.raises(PySparkException, match="did you mean minPartitions"):
        reading.batch(minPartition=3)
    with pytest.raises(PySparkException, match="'nowhere' is not in the cluster"):
        reading.values(subscribe="nowhere")


def test_conditions_leave_partitions_and_offsets_unread(
    reading: Reading, spark: SparkSession
) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0, timestamp_ms=1_000)
    reading.topics.fill(reading.topic, numbered(100, 100), partition=1, timestamp_ms=5_000)
    for is_pushed in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", is_pushed)
        try:
            frame = reading.batch().filter("partition = 1 and offset between 10 and 19")
            assert frame.count() == 10
            assert frame.rdd.getNumPartitions() == (1 if is_pushed == "true" else 2)
            young = reading.batch().filter("timestamp > timestamp_millis(2000)")
            assert young.count() == 100
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_tasks_are_cut_as_asked(reading: Reading) -> None:
    values = numbered(1_000)
    reading.topics.fill(reading.topic, values)
    assert reading.batch(minPartitions=7).rdd.getNumPartitions() >= 7
    assert reading.values(maxRecordsPerPartition=100) == values


def test_a_stream_goes_on_where_it_was_with_limited_batches(reading: Reading) -> None:
    first, second = numbered(1_000), numbered(500, 1_000)
    reading.topics.fill(reading.topic, first)
    reports = reading.run_stream("out", maxOffsetsPerTrigger=300)
    assert reading.table("out") == first
    assert len(reports) == 4
    assert all(int(str(one["numInputRows"])) <= 302 for one in reports)
    reading.topics.add_partitions(reading.topic, 3)
    reading.topics.fill(reading.topic, second, partition=2)
    reading.run_stream("out", maxOffsetsPerTrigger=300)
    assert reading.table("out") == first + second


def test_a_batch_is_limited_by_bytes(reading: Reading) -> None:
    values = [f"{number:06}" + "x" * 994 for number in range(2_000)]
    reading.topics.fill(reading.topic, values)
    reports = reading.run_stream("out", maxBytesPerTrigger=1_000_000)
    assert reading.table("out") == values
    # Key and value have a kilobyte each.
    assert 4 <= len(reports) <= 8


def test_records_that_are_gone_are_never_passed_over_in_silence(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    reading.run_stream("out")
    reading.topics.fill(reading.topic, numbered(100, 100), partition=0)
    reading.topics.delete_records(reading.topic, 0, 150)
    with pytest.raises(PySparkException, match="offsets 100 to 149 are not there any more"):
        reading.run_stream("out")
    reading.run_stream("out", failOnDataLoss="false")
    assert reading.table("out") == numbered(100) + numbered(50, 150)


def test_a_topic_that_was_created_again(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    reading.run_stream("out")
    reading.topics.delete(reading.topic)
    reading.topics.create(reading.topic, 2)
    reading.topics.fill(reading.topic, numbered(10, 500), partition=0)
    with pytest.raises(PySparkException, match="the log ends at 10, before the offset 100"):
        reading.run_stream("out")
    reading.run_stream("out", failOnDataLoss="false")
    assert reading.table("out") == numbered(100) + numbered(10, 500)


def test_aborted_transactions_are_skipped(reading: Reading) -> None:
    reading.topics.transact(reading.topic, numbered(10), commits=True)
    reading.topics.transact(reading.topic, numbered(10, 10), commits=False)
    reading.topics.transact(reading.topic, numbered(10, 20), commits=True)
    committed_only = {"kafka.isolation.level": "read_committed"}
    assert reading.values(**committed_only) == numbered(10) + numbered(10, 20)
    assert reading.values() == numbered(30)
    reading.run_stream("out", **committed_only)
    assert reading.table("out") == numbered(10) + numbered(10, 20)


def test_progress_is_seen_in_a_group_and_knows_a_new_topic_by_its_id(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    group = f"progress-{reading.topic}"
    reading.run_stream("out", progressGroup=group)
    assert reading.topics.committed(group) == {(reading.topic, 0): 100, (reading.topic, 1): 0}
    reading.topics.delete(reading.topic)
    reading.topics.create(reading.topic, 2)
    reading.topics.fill(reading.topic, numbered(300, 500), partition=0)
    # By its offsets alone the new topic could be the old one.
    with pytest.raises(PySparkException, match="was deleted and created again"):
        reading.run_stream("out", progressGroup=group)
    reading.run_stream("out", progressGroup=group, failOnDataLoss="false")
    assert reading.table("out") == numbered(100) + numbered(300, 500)
