"""A query that is slower than retention: it loses what it has not read, unless it holds it."""

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
from tests.spark.topics import PATIENCE_SECONDS, Topics

pytestmark = pytest.mark.skipif(
    not LIMITS_BATCHES, reason="a micro-batch of PySpark 4.1 takes all there is: nothing is unread"
)
RECORDS = 100
GROUP = "lake"
#: Two topics with the same records and the same retention; nobody may hold those of the second.
TOPIC, UNHELD = "orders", "unheld"


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    settings = {**SETTINGS, "log.retention.check.interval.ms": "100"}
    with (
        Server.of("lograft", tmp_path / "node", settings=settings).started() as node,
        Topics(node.bootstrap) as made,
    ):
        made.create(TOPIC, 1, **{"retention.hold.groups": f"other,{GROUP}"})
        made.create(UNHELD, 1)
        for topic in (TOPIC, UNHELD):
            made.fill(topic, map(str, range(RECORDS)))
        yield made


def let_retention_pass(topics: Topics) -> None:
    """Returns when it has: the topics are looked at in one round, and all is old in both."""
    with Admin(bootstrap_servers=topics.bootstrap) as admin:
        for topic in (TOPIC, UNHELD):
            admin.alter_configs({topic_resource(topic): [ConfigChange("retention.ms", "1")]})
    wait_emptied(topics, UNHELD)


def log_start(topics: Topics, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "looks"})
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_SECONDS)
        assert found is not None
        return found[0]
    finally:
        consumer.close()


def wait_emptied(topics: Topics, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while log_start(topics, topic) < RECORDS:
        assert time.monotonic() < deadline, f"retention has not emptied {topic}"
        time.sleep(0.1)


def start(
    spark: SparkSession, topics: Topics, folder: Path, on_first: Callable[[], None], **options: str
) -> tuple[StreamingQuery, list[int]]:
    """A query in small batches, which stops at the first one as long as `on_first` takes; and the
    offsets that it sees."""
    seen: list[int] = []

    def keep(batch: DataFrame, number: int) -> None:
        seen.extend(row.offset for row in batch.select("offset").collect())
        if number == 0:
            on_first()

    stream = spark.readStream.format("lograft").options(
        subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=10, **options
    )
    frame = stream.option("kafka.bootstrap.servers", topics.bootstrap).load()
    writing = frame.writeStream.foreachBatch(keep)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    return writing.trigger(availableNow=True).start(), seen


def test_a_slow_query_holds_what_is_unread(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    def on_first() -> None:
        let_retention_pass(topics)
        with Admin(bootstrap_servers=topics.bootstrap) as admin:
            (hold,) = admin.list_retention_holds(now_ms=int(time.time() * 1000))
        assert (hold.topic, hold.group, hold.offset) == (TOPIC, GROUP, 0)
        assert hold.records_kept == RECORDS

    hold = {"progressGroup": GROUP, "retentionHold": "10m"}
    query, seen = start(spark, topics, tmp_path, on_first, **hold)
    assert query.awaitTermination(PATIENCE_SECONDS * 4)
    assert seen == list(range(RECORDS))
    wait_emptied(topics, TOPIC)


def test_retention_passes_a_slow_query_that_holds_nothing(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    def on_first() -> None:
        let_retention_pass(topics)
        wait_emptied(topics, TOPIC)

    query, seen = start(spark, topics, tmp_path, on_first, progressGroup=GROUP)
    with pytest.raises(PySparkException, match="offsets 10 to 99 are not there any more"):
        query.awaitTermination(PATIENCE_SECONDS * 4)
    assert seen == list(range(10))


def test_a_hold_that_the_topic_does_not_allow_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    query, seen = start(
        spark, topics, tmp_path, lambda: None, progressGroup="stranger", retentionHold="1m"
    )
    with pytest.raises(PySparkException, match="does not let group 'stranger' hold its records"):
        query.awaitTermination(PATIENCE_SECONDS * 4)
    assert seen == []
