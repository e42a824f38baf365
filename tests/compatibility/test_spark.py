"""The same Spark program on `format("kafka")` with Apache Kafka and on `format("lograft")` with
Lograft, and in the other combinations: equal tables, equal offsets, and a checkpoint that both can
continue."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lograft.spark.offsets import Offsets, from_json
from tests.compatibility.servers import Kind, Server
from tests.spark.topics import TIMEOUT_SECONDS, Topics

with warnings.catch_warnings():  # it imports deprecated parts of the library
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, Server]]:
    # The records have timestamps of 2023, which retention would delete.
    settings = {"log.retention.ms": "-1"}
    lograft = Server.of("lograft", tmp_path_factory.mktemp("lograft"), settings=settings)
    kafka = Server.of("kafka", tmp_path_factory.mktemp("kafka"), settings=settings)
    with lograft.started(), kafka.started():
        yield {"lograft": lograft, "kafka": kafka}


class Story:
    """A program with one format on one server; its topics have the same names everywhere."""

    def __init__(self, spark: SparkSession, kind: str, server: Server, name: str) -> None:
        self.spark = spark
        self.kind = kind
        self.topics = Topics(server.bootstrap)
        self.base: dict[str, Any] = {"kafka.bootstrap.servers": server.bootstrap}
        self.origin, self.target = f"{name}-in", f"{name}-out"

    def fill(self) -> None:
        self.topics.create(self.origin, 2)
        self.topics.create(self.target, 2)
        producer = Producer({"bootstrap.servers": self.topics.bootstrap, "compression.type": "lz4"})
        for number in range(300):
            headers: list[tuple[str, str | bytes | None]] = [("n", str(number).encode())]
            producer.produce(
                self.origin,
                key=f"k{number % 7}",
                value=json.dumps({"n": number, "who": f"w{number % 3}"}),
                partition=number % 2,
                timestamp=1_700_000_000_000 + number * 1000,
                headers=headers if number % 5 else None,
            )
        producer.flush(TIMEOUT_SECONDS)

    def tables(self) -> dict[str, list[Any]]:
        """The output of the notebook."""
        reading = self.spark.read.format(self.kind).options(**self.base, subscribe=self.origin)
        whole = reading.option("includeHeaders", "true").load()
        some = {self.origin: {"0": 10, "1": 20}}
        part = reading.option("startingOffsets", json.dumps(some)).load()
        timed = reading.option("startingTimestamp", str(1_700_000_100_000)).load()
        parsed = whole.selectExpr("from_json(cast(value as string), 'n int, who string') j", "*")
        return {
            "schema": [whole.schema.jsonValue()],
            "whole": rows(whole.orderBy("partition", "offset")),
            "part": rows(part.orderBy("partition", "offset")),
            "timed": rows(timed.orderBy("partition", "offset")),
            "grouped": rows(parsed.groupBy("j.who").agg({"j.n": "sum"}).orderBy("who")),
        }

    def copy(self, folder: Path) -> Offsets:
        """Copies all new records in a stream to the other topic; returns the offsets in the
        checkpoint."""
        stream = self.spark.readStream.format(self.kind).options(**self.base)
        frame = stream.options(subscribe=self.origin, startingOffsets="earliest").load()
        writing = frame.select("key", "value").writeStream.format(self.kind).options(**self.base)
        writing = writing.option("topic", self.target).option("checkpointLocation", str(folder))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_SECONDS * 5)
        newest = max((folder / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return from_json(json.loads(newest.read_text().splitlines()[2]))

    def copied(self) -> list[Any]:
        reading = self.spark.read.format(self.kind).options(**self.base, subscribe=self.target)
        return rows(reading.load().selectExpr("cast(value as string) v").orderBy("v"))


def rows(frame: Any) -> list[Any]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_the_same_program_gives_equal_tables(
    spark: SparkSession, servers: dict[Kind, Server], tmp_path: Path
) -> None:
    found = {}
    for name, server in servers.items():
        for kind in ("kafka", "lograft"):
            story = Story(spark, kind, server, f"story-{kind}")
            story.origin = "story-in"  # the topic's name is part of the tables
            if kind == "kafka":
                story.fill()
            else:
                story.topics.create(story.target, 2)
            offsets = story.copy(tmp_path / f"{kind}-{name}")
            found[kind, name] = (story.tables(), offsets, story.copied())
    expected = found["kafka", "kafka"]
    assert len(expected[0]["whole"]) == 300
    for what, seen in found.items():
        assert seen == expected, what


def test_a_checkpoint_moves_between_the_connectors(
    spark: SparkSession, servers: dict[Kind, Server], tmp_path: Path
) -> None:
    name = "moving"
    first = Story(spark, "kafka", servers["lograft"], name)
    first.fill()
    for number, kind in enumerate(("kafka", "lograft", "kafka")):
        story = Story(spark, kind, servers["lograft"], name)
        if number:
            story.topics.fill(story.origin, [f"more-{number}-{row}" for row in range(50)])
        story.copy(tmp_path / "checkpoint")
    values = [row["v"] for row in first.copied()]
    assert len(values) == 400
    assert len(set(values)) == 400
