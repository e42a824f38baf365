"""Tests of at-least-once writes on a real node; another client reads the records."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.topics import TIMEOUT_SECONDS, Topics

NewTopic = Callable[..., str]


def records_of(topics: Topics, topic: str, partitions: int, count: int) -> Iterator[Message]:
    """Reads `count` records of a topic with librdkafka's consumer in read_committed mode."""
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    try:
        for _ in range(count):
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, "fewer records than expected"
            assert message.error() is None, message.error()
            yield message
    finally:
        consumer.close()


def test_rows_of_a_table_become_records(
    spark: SparkSession, topics: Topics, new_topic: NewTopic
) -> None:
    first, second = new_topic(2), new_topic(1)
    frame = spark.sql(
        f"""
        select cast(id as string) key, cast('v' as binary) value, cast(id % 2 as int) partition,
               array(named_struct('key', 'n', 'value', cast('x' as binary))) headers,
               '{first}' topic, 'ignored' note
        from range(1000)
        union all select null, null, null, null, '{second}', null
        """
    )
    base = {"kafka.bootstrap.servers": topics.bootstrap}
    frame.write.format("lograft").options(**base).mode("append").save()
    found = list(records_of(topics, first, 2, 1000))
    assert sorted(int(bytes(record.key() or b"-1")) for record in found) == list(range(1000))
    assert all(record.partition() == int(record.key() or b"0") % 2 for record in found)
    assert found[0].headers() == [("n", b"x")]
    empty = next(records_of(topics, second, 1, 1))
    assert (empty.key(), empty.value(), empty.headers()) == (None, None, None)


def test_stream_copies_a_topic(
    spark: SparkSession, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    origin, target = new_topic(2), new_topic(2)
    topics.fill(origin, [f"{number}" for number in range(500)])
    base = {"kafka.bootstrap.servers": topics.bootstrap}
    reading = spark.readStream.format("lograft").options(**base)
    stream = reading.option("subscribe", origin).option("startingOffsets", "earliest").load()
    query = (
        stream.selectExpr("key", "concat(cast(value as string), '!') value")
        .writeStream.format("lograft")
        .options(**base, topic=target, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(TIMEOUT_SECONDS)
    found = [bytes(record.value() or b"") for record in records_of(topics, target, 2, 500)]
    assert sorted(found) == sorted(b"%d!" % number for number in range(500))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select 'k' key", "the query has no column value; its columns are key"),
        ("select 'v' value", "no topic"),
        ("select 1.5D value, 't' topic", "column value is double, but must be string or binary"),
        ("select 'v' value, 't' topic, 'h' headers", "column headers is string"),
        ("select 'v' value, 't' topic, '1' partition", "partition is string, but must be integer"),
        ("select 'v' value, cast(null as string) topic", "a row has null as its topic"),
        ("select 'v' value, '{topic}' topic, -1 partition", "column `partition` contains -1"),
    ],
)
def test_rows_that_cannot_become_records_are_rejected(
    spark: SparkSession, topics: Topics, new_topic: NewTopic, query: str, words: str
) -> None:
    writer = spark.sql(query.format(topic=new_topic(1))).write.format("lograft").mode("append")
    with pytest.raises(PySparkException, match=words):
        writer.option("kafka.bootstrap.servers", topics.bootstrap).save()
