"""The ready pipelines on a real node."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lograft.model.errors import InvalidConfig
from lograft.spark import register
from lograft.spark.lag import Lag
from lograft.spark.pipelines import checkpoints
from lograft.spark.pipelines.batch_headers import HEADER
from lograft.spark.pipelines.checkpoints import write_cached_once
from lograft.spark.pipelines.folders import BatchTable, SnapshotTable
from lograft.spark.pipelines.lake_values import JsonValues
from lograft.spark.pipelines.running import Watch, run_settings, run_stoppable
from lograft.spark.pipelines.sequences import sequence_faults
from lograft.spark.pipelines.settings import (
    Audit,
    Lake,
    Settings,
    Source,
    Spark,
    State,
    Value,
    Windows,
)
from lograft.spark.pipelines.tables import table_writer
from tests.spark.reading import committed_values
from tests.spark.topics import PATIENCE_SECONDS, Topics

NewTopic = Callable[..., str]


class Running:
    """Pipelines over one topic, in the session of all tests."""

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.topic = topic
        self.folder = folder
        self.told: list[Lag] = []
        self.said: list[str] = []

    @property
    def new_fields(self) -> list[str]:
        """A busy machine gives more to say: that Spark had to try again."""
        return [one for one in self.said if one.startswith("new fields")]

    def run(self, name: str, section: Lake | Windows | Audit | State, **source: int | str) -> None:
        asked = Source(bootstrap=self.topics.bootstrap, topics=(self.topic,), **source)  # type: ignore[arg-type]
        settings = Settings(source=asked, spark=Spark(), **{name: section})  # type: ignore[arg-type]
        watch = Watch(tell=self.told.append, say=self.said.append)
        run_settings(name, settings, spark=self.spark, watch=watch)

    def fill(self, *values: object, partition: int = 0, timestamp_ms: int = 0) -> None:
        texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
        self.topics.fill(self.topic, texts, partition=partition, timestamp_ms=timestamp_ms)

    def table(self, *inside: str) -> list[dict[str, object]]:
        path = str(self.folder.joinpath(*inside))
        frame = self.spark.read.option("mergeSchema", "true").parquet(path)
        return [row.asDict() for row in frame.collect()]


@pytest.fixture
def running(spark: SparkSession, topics: Topics, new_topic: NewTopic, tmp_path: Path) -> Running:
    return Running(spark, topics, new_topic(2), tmp_path)


def test_lake_takes_new_fields_and_sets_bad_records_aside(
    running: Running, new_topic: NewTopic
) -> None:
    dead = new_topic(1)
    lake = Lake(folder=str(running.folder), dead_letter_topic=dead, compact_every=0)
    day = 1_700_000_000_000
    running.fill(*({"id": number} for number in range(20)), timestamp_ms=day)
    running.run("lake", lake, max_offsets_per_trigger=10)
    assert len(running.told) == 2
    assert running.told[-1].total == 0
    later = day + 86_400_000
    running.fill({"id": 20, "price": 1.5}, {"id": "no number"}, "no json", timestamp_ms=later)
    running.run("lake", lake)
    rows = running.table()
    assert sorted(row["id"] for row in rows) == list(range(21))  # type: ignore[type-var]
    assert {(row["id"], row["price"]) for row in rows if row["price"]} == {(20, 1.5)}
    assert {str(row["date"]) for row in rows} == {"2023-11-14", "2023-11-15"}
    assert running.new_fields == ["new fields: price"]

    consumer = Consumer({"bootstrap.servers": running.topics.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(dead, 0, 0)])
    letters = [consumer.poll(PATIENCE_SECONDS) for _ in range(2)]
    consumer.close()
    reasons = {
        bytes(one.value() or b""): dict(one.headers() or [])["dead-letter.reason"]
        for one in letters
        if one is not None
    }
    assert reasons == {
        b'{"id": "no number"}': b"the value is not what the schema says",
        b"no json": b"the value is not a JSON object",
    }


@pytest.mark.parametrize("few_rows_max", [1, 2], ids=["by Spark", "by the driver"])
def test_dead_letters_that_come_again_are_written_once(
    running: Running, monkeypatch: pytest.MonkeyPatch, few_rows_max: int
) -> None:
    monkeypatch.setattr(checkpoints, "_FEW_ROWS_MAX", few_rows_max)
    spark = running.spark
    register(spark)
    rows = spark.createDataFrame([(b"a",), (b"b",)], "value binary")
    servers = {"kafka.bootstrap.servers": running.topics.bootstrap}
    for _ in range(2):
        write_cached_once(rows, servers | {"topic": running.topic}, running.topic, 0)
    write_cached_once(rows.limit(0), servers | {"topic": running.topic}, running.topic, 1)
    written = spark.read.format("lograft").options(**servers, subscribe=running.topic).load()
    assert sorted(bytes(row.value) for row in written.collect()) == [b"a", b"b"]


def test_lake_puts_small_files_together_and_keeps_every_record(running: Running) -> None:
    lake = Lake(folder=str(running.folder), schema="id BIGINT", compact_every=3)
    for partition in (0, 1):
        numbers = range(partition, 40, 2)
        running.fill(*({"id": number} for number in numbers), partition=partition)
    running.run("lake", lake, max_offsets_per_trigger=10)
    assert sorted(row["id"] for row in running.table()) == list(range(40))  # type: ignore[type-var]
    files = list(running.folder.glob("batch=*/**/*.parquet"))
    assert len(files) == 1
    assert pq.read_metadata(files[0]).num_rows == 40


def test_lake_keeps_every_field_as_it_was(running: Running) -> None:
    """Fields with the names of the table's own columns, in objects, in another case, and parts of
    the table whose names look like numbers: also when its files are put together."""
    lake = Lake(folder=str(running.folder), partition_by=("code",))
    running.fill({"id": 1, "code": "007", "batch": "A", "_offset": 7, "who": {"name": "x"}})
    running.run("lake", lake)
    producer = Producer({"bootstrap.servers": running.topics.bootstrap})
    producer.produce(running.topic, key=b"\xff\x00", value='{"id": 4, "code": "x"}', partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    running.fill({"id": 2, "code": "1e2", "batch": "B", "who": {"name": "y", "age": 7}}, {"ID": 3})
    running.run("lake", lake)
    assert running.new_fields == ["new fields: who.age"]
    rows = {row["id"]: row for row in running.table()}
    assert rows.keys() == {1, 2, 4}
    assert rows[4]["_key"] == "FF00", "not text that others could not read"
    assert (rows[1]["batch_"], rows[1]["_offset_"], rows[2]["batch_"]) == ("A", 7, "B")
    assert rows[2]["who"] == ("y", 7)
    names = {one.name for one in running.folder.glob("batch=1/*")}
    assert names >= {"code=007", "code=1e2"}
    [letter] = running.table("_dead")
    assert letter["value"] == b'{"ID": 3}'


def test_lake_finds_fields_that_a_sample_does_not_show(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lograft.spark.pipelines.json_values.SAMPLE", 2)
    said: list[str] = []
    values = JsonValues(None, BatchTable(str(tmp_path)), said.append)

    def columns_of(*texts: str) -> list[str]:
        rows = [("topic", 0, number, None, None, text) for number, text in enumerate(texts)]
        schema = "topic string, partition int, offset bigint, timestamp timestamp, key binary"
        records = spark.createDataFrame(rows, schema + ", value string").coalesce(1)
        return values.parse(records).schema.names

    assert columns_of('{"id": 0}', '{"id": 1}', '{"id": 2, "late": 1}') == ["id", "late"]
    both = ["id", "late", "a", "b"]
    assert columns_of('{"a": 1}', '{"a": 2}', '{"id": 5, "b": {"c": 1}}') == both
    assert said == ["new fields: a, b"]


def test_lake_puts_together_what_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Batches of dead letters only leave no file behind."""
    writer = table_writer("parquet", BatchTable(str(tmp_path)), ("date",))
    rows = spark.createDataFrame([(1, "2023-11-14")], "id int, date string")
    for batch in (0, 1):
        writer.write(rows.limit(0), batch)
    writer.compact(spark)
    writer.write(rows, 2)
    writer.compact(spark)
    assert [one.name for one in tmp_path.glob("batch=*")] == ["batch=2"]
    assert spark.read.parquet(str(tmp_path)).count() == 1


@pytest.mark.parametrize("name", ["lake", "state"])
def test_a_table_whose_checkpoint_is_gone_is_not_taken_for_filled(
    running: Running, name: str
) -> None:
    section = {"lake": Lake, "state": State}[name](folder=str(running.folder))
    running.fill({"id": 1})
    running.run(name, section)
    rmtree(running.folder / "_checkpoint")
    with pytest.raises(InvalidConfig, match="written with another checkpoint"):
        running.run(name, section)


def test_windows_into_a_table(running: Running) -> None:
    def clicks(minute: int, user: str, count: int) -> None:
        moment = 1_700_000_040_000 + minute * 60_000
        running.fill(*[{"user": user, "ms": 1}] * count, timestamp_ms=moment)

    clicks(0, "a", 3)
    clicks(0, "b", 2)
    clicks(1, "a", 4)
    clicks(30, "a", 1)
    windows = Windows(
        folder=str(running.folder),
        window="1 minute",
        watermark="5 minutes",
        group_by=("user",),
        aggregates={"clicks": "count(*)", "spent": "sum(ms)"},
        mode="complete",
    )
    running.run("windows", windows)
    current = SnapshotTable(str(running.folder / "table")).current_path()
    assert current is not None
    rows = running.table(str(Path(current).relative_to(running.folder)))
    counted = sorted((row["user"], row["clicks"], row["spent"]) for row in rows)
    assert counted == [("a", 1, 1), ("a", 3, 3), ("a", 4, 4), ("b", 2, 2)]


def test_windows_into_a_topic_as_they_grow(running: Running, new_topic: NewTopic) -> None:
    target = new_topic(1)
    windows = Windows(
        folder=str(running.folder),
        window="1 minute",
        schema="id BIGINT",
        mode="update",
        topic=target,
    )
    moment = int(time.time()) // 60 * 60_000
    running.fill({"id": 1}, {"id": 2}, timestamp_ms=moment)
    running.run("windows", windows)
    running.fill({"id": 3}, timestamp_ms=moment + 1)
    running.run("windows", windows)
    told = [json.loads(one) for one in committed_values(running.topics, target, 1)]
    assert sorted(one["records"] for one in told) == [2, 3]
    assert len({one["window_start"] for one in told}) == 1


def test_state_is_the_latest_value_of_every_key(running: Running) -> None:
    history = {"one": ["1", "2"], "two": ["1"]}

    producer = Producer({"bootstrap.servers": running.topics.bootstrap})
    for key, values in history.items():
        for value in values:
            producer.produce(running.topic, key=key, value=value)
    # A key that moves when partitions are added begins there with small offsets.
    now_ms = int(time.time() * 1000)
    for _ in range(5):
        producer.produce(running.topic, key="moved", value="old", partition=0, timestamp=now_ms)
    producer.produce(running.topic, key="moved", value="new", partition=1, timestamp=now_ms + 1)
    producer.flush(PATIENCE_SECONDS)
    state = State(folder=str(running.folder))
    running.run("state", state)
    producer.produce(running.topic, key="moved", value="late", partition=0, timestamp=now_ms)
    producer.produce(running.topic, key="two", value=None)
    producer.produce(running.topic, key="three", value="3")
    producer.flush(PATIENCE_SECONDS)
    running.run("state", state)
    current = SnapshotTable(str(running.folder)).current_path()
    assert current is not None
    rows = running.table(Path(current).name)
    found = {bytes(row["key"]): bytes(row["value"]) for row in rows}  # type: ignore[call-overload]
    assert found == {b"one": b"2", b"three": b"3", b"moved": b"new"}


def test_audit_sees_unread_ranges_hot_keys_and_sequences(running: Running) -> None:
    group = f"readers-of-{running.topic}"
    now_ms = int(time.time() * 1000)
    running.fill("same", "same", "same", "x" * 100, partition=0, timestamp_ms=now_ms - 3_600_000)
    consumer = Consumer({"bootstrap.servers": running.topics.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(running.topic, 0, 0)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition(running.topic, 0, 1)], asynchronous=False)
    consumer.close()
    # As the sink keeps the number of its next batch.
    slot = Consumer({"bootstrap.servers": running.topics.bootstrap, "group.id": "spark-sink-q-0"})
    slot.commit(offsets=[TopicPartition(running.topic, 0, 0)], asynchronous=False)
    slot.commit(offsets=[TopicPartition(running.topic, 0, 1)], asynchronous=False)
    slot.close()
    running.fill("y", partition=1, timestamp_ms=1_700_000_000_000)
    running.topics.add_partitions(running.topic, 4)
    running.topics.transact(running.topic, ["z"], partition=2, commits=True)
    running.run("audit", Audit(folder=str(running.folder)))
    html = (running.folder / "audit.html").read_text()
    # Records, bytes, from where to where, and offsets without a record: a marker; none at all.
    numbers = r"<td class=n>(\d+)</td>" * 6
    partitions = re.findall(rf"<tr><td>{running.topic}</td>{numbers}", html)
    assert ("2", "1", "1", "0", "2", "1") in partitions
    assert ("3", "0", "0", "0", "0", "0") in partitions
    assert f"<td>{group}</td><td>{running.topic}</td>" in html
    assert "<td>1 to 3</td>" in html, "the offsets that the group has not read"
    assert "<td>–</td><td class=n>1</td><td class=n>1</td><td>0 to 0</td>" in html, "all of it"
    assert "spark-sink-" not in html
    assert "<td>2023-11-14 22:13</td>" in html
    assert "<td>same</td><td class=n>3</td><td class=n>50</td>" in html
    assert "64 to 127" in html
    # One record lies between the two commits; it was made an hour before them.
    row = rf"<td>{group}</td><td>{running.topic}</td><td class=n>1</td>(.*?)</tr>"
    told = re.findall(row, html)[-1]  # before it, in the table of groups: partition 1
    latencies = [int(one.replace(",", "")) for one in re.findall(r">([\d,]+)<", told)]
    assert len(latencies) == 4
    assert all(3_600_000 <= one < 7_200_000 for one in latencies)
    assert running.said[-1].startswith("report: ")
    running.topics.delete_records(running.topic, 0, 3)
    running.run("audit", Audit(folder=str(running.folder)))
    html = (running.folder / "audit.html").read_text()
    assert "<td class=n>1</td><td>3 to 3</td><td class=n>2</td>" in html, "two were never read"


def test_audit_counts_jumps_and_repetitions_of_sequences(spark: SparkSession) -> None:
    highest = (1 << 31) - 1
    #: First number and records of each batch, and then gaps and duplicates.
    cases: list[tuple[list[tuple[int, int]], int, int]] = [
        ([(0, 2), (2, 1), (3, 2)], 0, 0),
        ([(0, 1), (1, 1), (2, 1), (1, 1), (3, 1)], 0, 1),
        ([(0, 2), (5, 1), (6, 1), (9, 1)], 2, 0),
        ([(highest - 1, 2), (0, 3), (3, 1)], 0, 0),
        ([(highest, 1), (0, 1), (highest, 1), (0, 1), (1, 1), (3, 1)], 1, 2),
    ]
    rows = []
    for producer, (batches, _, _) in enumerate(cases):
        offset = 0
        for sequence, records in batches:
            last = offset + records - 1
            rows.append(("t", 0, offset, last, records, 9, producer, 0, sequence, False))
            offset += records
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in HEADER.items())
    faults = sequence_faults(spark.createDataFrame(rows, schema)).orderBy("producer_id")
    found = [(row["gaps"], row["duplicates"]) for row in faults.collect()]
    assert found == [(gaps, duplicates) for _, gaps, duplicates in cases]


def test_work_that_is_no_query_stops_too(spark: SparkSession) -> None:
    def count_for_ever() -> None:
        while spark.range(1 << 40).selectExpr("sum(rand())").collect():
            pass

    said: list[str] = []
    run_stoppable(spark, Watch(say=said.append, should_stop=lambda: True), count_for_ever)
    assert said == ["stopped on request"]
    with pytest.raises(PySparkException, match="nonsense"):
        run_stoppable(spark, Watch(), lambda: spark.sql("select nonsense"))


def test_a_format_whose_package_is_not_there_is_named_with_it(running: Running) -> None:
    file = running.folder / "order.avsc"
    file.write_text('{"type": "record", "name": "Order", "fields": []}')
    lake = Lake(folder=str(running.folder), value=Value(format="avro", schema_file=str(file)))
    package = f"org.apache.spark:spark-avro_2.13:{running.spark.version}"
    with pytest.raises(InvalidConfig, match=f"not on the path.*{package}"):
        running.run("lake", lake)


def rows_of(kind: str, folder: Path) -> list[dict[str, object]]:
    """What the table holds, as its own library reads it."""
    if kind == "delta":
        table = pytest.importorskip("deltalake").DeltaTable(str(folder / "delta"))
    else:
        catalogs = pytest.importorskip("pyiceberg.catalog.sql")
        catalog = catalogs.SqlCatalog("lograft", uri=f"sqlite:///{folder}/_catalog.db")
        table = catalog.load_table("lograft.lake").scan()
    found: list[dict[str, object]] = (
        table.to_pyarrow_table() if kind == "delta" else table.to_arrow()
    ).to_pylist()
    return found


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lake_tables_of_other_formats(running: Running, kind: str) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    lake = Lake(folder=str(running.folder), format=kind, compact_every=2)
    running.fill(*({"id": number} for number in range(20)))
    running.run("lake", lake, max_offsets_per_trigger=10)
    running.fill({"id": 20, "price": 1.5}, "no json")
    running.run("lake", lake)
    running.fill({"id": 21})
    running.run("lake", lake)
    rows = rows_of(kind, running.folder)
    assert sorted(row["id"] for row in rows) == list(range(22))  # type: ignore[type-var]
    assert [row["id"] for row in rows if row["price"]] == [20]
    # Whoever dies between the table and Spark's own log brings the batch again.
    writer = table_writer(kind, BatchTable(str(running.folder)), ("date",))
    assert [writer.has(batch) for batch in range(5)] == [True] * 4 + [False]
