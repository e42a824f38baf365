"""Tests of the pipelines on a real node."""

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
from lograft.spark.pipelines.running import RunObserver, run_settings, run_stoppable
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
from tests.spark.reading import read_committed_values
from tests.spark.topics import TIMEOUT_SECONDS, Topics

NewTopic = Callable[..., str]


class PipelineRunner:
    """Runs pipelines over a topic in the shared session."""

    def __init__(self, spark: SparkSession, topics: Topics, topic: str, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.topic = topic
        self.folder = folder
        self.lags: list[Lag] = []
        self.messages: list[str] = []

    @property
    def new_fields(self) -> list[str]:
        """Messages about new fields; a slow start of Spark adds other messages."""
        return [message for message in self.messages if message.startswith("new fields")]

    def run(self, name: str, section: Lake | Windows | Audit | State, **source: int | str) -> None:
        source_settings = Source(bootstrap=self.topics.bootstrap, topics=(self.topic,), **source)  # type: ignore[arg-type]
        settings = Settings(source=source_settings, spark=Spark(), **{name: section})  # type: ignore[arg-type]
        observer = RunObserver(on_batch=self.lags.append, on_message=self.messages.append)
        run_settings(name, settings, spark=self.spark, observer=observer)

    def fill(self, *values: object, partition: int = 0, timestamp_ms: int = 0) -> None:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        self.topics.fill(self.topic, texts, partition=partition, timestamp_ms=timestamp_ms)

    def table(self, *inside: str) -> list[dict[str, object]]:
        path = str(self.folder.joinpath(*inside))
        frame = self.spark.read.option("mergeSchema", "true").parquet(path)
        return [row.asDict() for row in frame.collect()]


@pytest.fixture
def runner(
    spark: SparkSession, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> PipelineRunner:
    return PipelineRunner(spark, topics, new_topic(2), tmp_path)


def test_lake_adds_new_fields_and_writes_dead_letters(
    runner: PipelineRunner, new_topic: NewTopic
) -> None:
    dead = new_topic(1)
    lake = Lake(folder=str(runner.folder), dead_letter_topic=dead, compact_every=0)
    day = 1_700_000_000_000
    runner.fill(*({"id": number} for number in range(20)), timestamp_ms=day)
    runner.run("lake", lake, max_offsets_per_trigger=10)
    assert len(runner.lags) == 2
    assert runner.lags[-1].total == 0
    later = day + 86_400_000
    runner.fill({"id": 20, "price": 1.5}, {"id": "no number"}, "no json", timestamp_ms=later)
    runner.run("lake", lake)
    rows = runner.table()
    assert sorted(row["id"] for row in rows) == list(range(21))  # type: ignore[type-var]
    assert {(row["id"], row["price"]) for row in rows if row["price"]} == {(20, 1.5)}
    assert {str(row["date"]) for row in rows} == {"2023-11-14", "2023-11-15"}
    assert runner.new_fields == ["new fields: price"]

    consumer = Consumer({"bootstrap.servers": runner.topics.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(dead, 0, 0)])
    letters = [consumer.poll(TIMEOUT_SECONDS) for _ in range(2)]
    consumer.close()
    reasons = {
        bytes(letter.value() or b""): dict(letter.headers() or [])["dead-letter.reason"]
        for letter in letters
        if letter is not None
    }
    assert reasons == {
        b'{"id": "no number"}': b"the value does not match the schema",
        b"no json": b"the value is not a JSON object",
    }


@pytest.mark.parametrize("driver_rows_max", [1, 2], ids=["by Spark", "by the driver"])
def test_repeated_dead_letters_are_written_once(
    runner: PipelineRunner, monkeypatch: pytest.MonkeyPatch, driver_rows_max: int
) -> None:
    monkeypatch.setattr(checkpoints, "_DRIVER_ROWS_MAX", driver_rows_max)
    spark = runner.spark
    register(spark)
    rows = spark.createDataFrame([(b"a",), (b"b",)], "value binary")
    servers = {"kafka.bootstrap.servers": runner.topics.bootstrap}
    for _ in range(2):
        write_cached_once(rows, servers | {"topic": runner.topic}, runner.topic, 0)
    write_cached_once(rows.limit(0), servers | {"topic": runner.topic}, runner.topic, 1)
    written = spark.read.format("lograft").options(**servers, subscribe=runner.topic).load()
    assert sorted(bytes(row.value) for row in written.collect()) == [b"a", b"b"]


def test_lake_compacts_small_files_and_keeps_every_record(runner: PipelineRunner) -> None:
    lake = Lake(folder=str(runner.folder), schema="id BIGINT", compact_every=3)
    for partition in (0, 1):
        numbers = range(partition, 40, 2)
        runner.fill(*({"id": number} for number in numbers), partition=partition)
    runner.run("lake", lake, max_offsets_per_trigger=10)
    assert sorted(row["id"] for row in runner.table()) == list(range(40))  # type: ignore[type-var]
    files = list(runner.folder.glob("batch=*/**/*.parquet"))
    assert len(files) == 1
    assert pq.read_metadata(files[0]).num_rows == 40


def test_lake_preserves_every_field(runner: PipelineRunner) -> None:
    """Fields named like the table's own columns, nested fields, fields in different case, and
    partitions whose names look like numbers, also after a compaction."""
    lake = Lake(folder=str(runner.folder), partition_by=("code",))
    runner.fill({"id": 1, "code": "007", "batch": "A", "_offset": 7, "who": {"name": "x"}})
    runner.run("lake", lake)
    producer = Producer({"bootstrap.servers": runner.topics.bootstrap})
    producer.produce(runner.topic, key=b"\xff\x00", value='{"id": 4, "code": "x"}', partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    runner.fill({"id": 2, "code": "1e2", "batch": "B", "who": {"name": "y", "age": 7}}, {"ID": 3})
    runner.run("lake", lake)
    assert runner.new_fields == ["new fields: who.age"]
    rows = {row["id"]: row for row in runner.table()}
    assert rows.keys() == {1, 2, 4}
    assert rows[4]["_key"] == "FF00", "keys that are not UTF-8 are hexadecimal"
    assert (rows[1]["batch_"], rows[1]["_offset_"], rows[2]["batch_"]) == ("A", 7, "B")
    assert rows[2]["who"] == ("y", 7)
    names = {folder.name for folder in runner.folder.glob("batch=1/*")}
    assert names >= {"code=007", "code=1e2"}
    [letter] = runner.table("_dead")
    assert letter["value"] == b'{"ID": 3}'


def test_lake_finds_fields_that_are_not_in_the_sample(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lograft.spark.pipelines.json_values.SAMPLE", 2)
    messages: list[str] = []
    values = JsonValues(None, BatchTable(str(tmp_path)), messages.append)

    def columns_of(*texts: str) -> list[str]:
        rows = [("topic", 0, number, None, None, text) for number, text in enumerate(texts)]
        schema = "topic string, partition int, offset bigint, timestamp timestamp, key binary"
        records = spark.createDataFrame(rows, schema + ", value string").coalesce(1)
        return values.parse(records).schema.names

    assert columns_of('{"id": 0}', '{"id": 1}', '{"id": 2, "late": 1}') == ["id", "late"]
    both = ["id", "late", "a", "b"]
    assert columns_of('{"a": 1}', '{"a": 2}', '{"id": 5, "b": {"c": 1}}') == both
    assert messages == ["new fields: a, b"]


def test_lake_compacts_batches_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Batches that contain only dead letters have no files."""
    writer = table_writer("parquet", BatchTable(str(tmp_path)), ("date",))
    rows = spark.createDataFrame([(1, "2023-11-14")], "id int, date string")
    for batch in (0, 1):
        writer.write(rows.limit(0), batch)
    writer.compact(spark)
    writer.write(rows, 2)
    writer.compact(spark)
    assert [folder.name for folder in tmp_path.glob("batch=*")] == ["batch=2"]
    assert spark.read.parquet(str(tmp_path)).count() == 1


@pytest.mark.parametrize("name", ["lake", "state"])
def test_table_without_its_checkpoint_is_rejected(runner: PipelineRunner, name: str) -> None:
    section = {"lake": Lake, "state": State}[name](folder=str(runner.folder))
    runner.fill({"id": 1})
    runner.run(name, section)
    rmtree(runner.folder / "_checkpoint")
    with pytest.raises(InvalidConfig, match="written with a different checkpoint"):
        runner.run(name, section)


def test_windows_are_written_to_a_table(runner: PipelineRunner) -> None:
    def clicks(minute: int, user: str, count: int) -> None:
        timestamp_ms = 1_700_000_040_000 + minute * 60_000
        runner.fill(*[{"user": user, "ms": 1}] * count, timestamp_ms=timestamp_ms)

    clicks(0, "a", 3)
    clicks(0, "b", 2)
    clicks(1, "a", 4)
    clicks(30, "a", 1)
    windows = Windows(
        folder=str(runner.folder),
        window="1 minute",
        watermark="5 minutes",
        group_by=("user",),
        aggregates={"clicks": "count(*)", "spent": "sum(ms)"},
        mode="complete",
    )
    runner.run("windows", windows)
    current = SnapshotTable(str(runner.folder / "table")).current_path()
    assert current is not None
    rows = runner.table(str(Path(current).relative_to(runner.folder)))
    counted = sorted((row["user"], row["clicks"], row["spent"]) for row in rows)
    assert counted == [("a", 1, 1), ("a", 3, 3), ("a", 4, 4), ("b", 2, 2)]


def test_windows_in_update_mode_are_written_to_a_topic(
    runner: PipelineRunner, new_topic: NewTopic
) -> None:
    target = new_topic(1)
    windows = Windows(
        folder=str(runner.folder),
        window="1 minute",
        schema="id BIGINT",
        mode="update",
        topic=target,
    )
    timestamp_ms = int(time.time()) // 60 * 60_000
    runner.fill({"id": 1}, {"id": 2}, timestamp_ms=timestamp_ms)
    runner.run("windows", windows)
    runner.fill({"id": 3}, timestamp_ms=timestamp_ms + 1)
    runner.run("windows", windows)
    windows_written = [json.loads(v) for v in read_committed_values(runner.topics, target, 1)]
    assert sorted(window["records"] for window in windows_written) == [2, 3]
    assert len({window["window_start"] for window in windows_written}) == 1


def test_state_is_the_latest_value_of_every_key(runner: PipelineRunner) -> None:
    history = {"one": ["1", "2"], "two": ["1"]}

    producer = Producer({"bootstrap.servers": runner.topics.bootstrap})
    for key, values in history.items():
        for value in values:
            producer.produce(runner.topic, key=key, value=value)
    # A key that moves when partitions are added starts with low offsets in its new partition.
    now_ms = int(time.time() * 1000)
    for _ in range(5):
        producer.produce(runner.topic, key="moved", value="old", partition=0, timestamp=now_ms)
    producer.produce(runner.topic, key="moved", value="new", partition=1, timestamp=now_ms + 1)
    producer.flush(TIMEOUT_SECONDS)
    state = State(folder=str(runner.folder))
    runner.run("state", state)
    producer.produce(runner.topic, key="moved", value="late", partition=0, timestamp=now_ms)
    producer.produce(runner.topic, key="two", value=None)
    producer.produce(runner.topic, key="three", value="3")
    producer.flush(TIMEOUT_SECONDS)
    runner.run("state", state)
    current = SnapshotTable(str(runner.folder)).current_path()
    assert current is not None
    rows = runner.table(Path(current).name)
    found = {bytes(row["key"]): bytes(row["value"]) for row in rows}  # type: ignore[call-overload]
    assert found == {b"one": b"2", b"three": b"3", b"moved": b"new"}


def test_audit_reports_unread_ranges_hot_keys_and_sequences(runner: PipelineRunner) -> None:
    group = f"readers-of-{runner.topic}"
    now_ms = int(time.time() * 1000)
    runner.fill("same", "same", "same", "x" * 100, partition=0, timestamp_ms=now_ms - 3_600_000)
    consumer = Consumer({"bootstrap.servers": runner.topics.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(runner.topic, 0, 0)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition(runner.topic, 0, 1)], asynchronous=False)
    consumer.close()
    # The sink stores its next batch ID like this.
    slot = Consumer({"bootstrap.servers": runner.topics.bootstrap, "group.id": "spark-sink-q-0"})
    slot.commit(offsets=[TopicPartition(runner.topic, 0, 0)], asynchronous=False)
    slot.commit(offsets=[TopicPartition(runner.topic, 0, 1)], asynchronous=False)
    slot.close()
    runner.fill("y", partition=1, timestamp_ms=1_700_000_000_000)
    runner.topics.add_partitions(runner.topic, 4)
    runner.topics.transact(runner.topic, ["z"], partition=2, commits=True)
    runner.run("audit", Audit(folder=str(runner.folder)))
    html = (runner.folder / "audit.html").read_text()
    # Records, bytes, start and end offset, and offsets without a record: a marker, and none.
    numbers = r"<td class=n>(\d+)</td>" * 6
    partitions = re.findall(rf"<tr><td>{runner.topic}</td>{numbers}", html)
    assert ("2", "1", "1", "0", "2", "1") in partitions
    assert ("3", "0", "0", "0", "0", "0") in partitions
    assert f"<td>{group}</td><td>{runner.topic}</td>" in html
    assert "<td>1 to 3</td>" in html, "unread offsets of the group"
    assert "<td>–</td><td class=n>1</td><td class=n>1</td><td>0 to 0</td>" in html, (
        "a partition that was never read"
    )
    assert "spark-sink-" not in html
    assert "<td>2023-11-14 22:13</td>" in html
    assert "<td>same</td><td class=n>3</td><td class=n>50</td>" in html
    assert "64 to 127" in html
    # One record is between the two commits; it was produced an hour before them.
    row = rf"<td>{group}</td><td>{runner.topic}</td><td class=n>1</td>(.*?)</tr>"
    cells = re.findall(row, html)[-1]  # the first match is partition 1 in the table of groups
    latencies = [int(text.replace(",", "")) for text in re.findall(r">([\d,]+)<", cells)]
    assert len(latencies) == 4
    assert all(3_600_000 <= latency < 7_200_000 for latency in latencies)
    assert runner.messages[-1].startswith("report: ")
    runner.topics.delete_records(runner.topic, 0, 3)
    runner.run("audit", Audit(folder=str(runner.folder)))
    html = (runner.folder / "audit.html").read_text()
    assert "<td class=n>1</td><td>3 to 3</td><td class=n>2</td>" in html, (
        "two records were deleted unread"
    )


def test_audit_counts_gaps_and_duplicates_of_sequences(spark: SparkSession) -> None:
    highest = (1 << 31) - 1
    #: Base sequence and record count of each batch; expected gaps and duplicates.
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


def test_work_other_than_a_query_stops_on_request(spark: SparkSession) -> None:
    def count_forever() -> None:
        while spark.range(1 << 40).selectExpr("sum(rand())").collect():
            pass

    messages: list[str] = []
    run_stoppable(
        spark, RunObserver(on_message=messages.append, should_stop=lambda: True), count_forever
    )
    assert messages == ["stopped on request"]
    with pytest.raises(PySparkException, match="nonsense"):
        run_stoppable(spark, RunObserver(), lambda: spark.sql("select nonsense"))


def test_error_names_the_missing_package_of_a_format(runner: PipelineRunner) -> None:
    file = runner.folder / "order.avsc"
    file.write_text('{"type": "record", "name": "Order", "fields": []}')
    lake = Lake(folder=str(runner.folder), value=Value(format="avro", schema_file=str(file)))
    package = f"org.apache.spark:spark-avro_2.13:{runner.spark.version}"
    with pytest.raises(InvalidConfig, match=f"not on the class path.*{package}"):
        runner.run("lake", lake)


def rows_of(kind: str, folder: Path) -> list[dict[str, object]]:
    """Reads the table with its own library."""
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
def test_lake_writes_delta_and_iceberg_tables(runner: PipelineRunner, kind: str) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    lake = Lake(folder=str(runner.folder), format=kind, compact_every=2)
    runner.fill(*({"id": number} for number in range(20)))
    runner.run("lake", lake, max_offsets_per_trigger=10)
    runner.fill({"id": 20, "price": 1.5}, "no json")
    runner.run("lake", lake)
    runner.fill({"id": 21})
    runner.run("lake", lake)
    rows = rows_of(kind, runner.folder)
    assert sorted(row["id"] for row in rows) == list(range(22))  # type: ignore[type-var]
    assert [row["id"] for row in rows if row["price"]] == [20]
    # After a crash between the write to the table and Spark's commit, the batch is repeated.
    writer = table_writer(kind, BatchTable(str(runner.folder)), ("date",))
    assert [writer.has(batch) for batch in range(5)] == [True] * 4 + [False]
