"""What is in the log and who has read it: the log inspection, as tables and an HTML page.

One pass over the records (keys, sizes, times), one over the headers of their batches (producers and
their sequences), the offsets of every group, and what is left of the history of their commits.
Nothing is written but the report.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lograft.model.types import TopicPartition
from lograft.runtime.clock import SystemClock
from lograft.spark.batch_reader import BatchReader
from lograft.spark.offsets import to_json
from lograft.spark.options import read_options
from lograft.spark.pipelines.batch_headers import headers_of
from lograft.spark.pipelines.consume_latency import commits_of, consume_latencies
from lograft.spark.pipelines.folders import Folder
from lograft.spark.pipelines.group_positions import GroupPosition, group_positions
from lograft.spark.pipelines.record_frames import key_text
from lograft.spark.pipelines.report import Section, page
from lograft.spark.pipelines.running import Watch
from lograft.spark.pipelines.sequences import sequence_faults
from lograft.spark.pipelines.settings import Settings
from lograft.spark.planning import Range

_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = "%Y-%m-%d %H:%M:%S"
_MINUTES: Final = "%Y-%m-%d %H:%M"
_MINUTE_MS: Final = 60_000


def audit(spark: SparkSession, settings: Settings, watch: Watch) -> list[Section]:
    """The sections of the report, which is also written to `audit.folder`."""
    asked = settings.audit
    assert asked is not None
    options = settings.source.batch_options()
    planned = BatchReader(read_options(options, is_streaming=False)).ranges()
    # What is written from now on is for the next audit: all tables are of the same records.
    ends = {TopicPartition(one.topic, one.partition): one.end for one in planned}
    options["endingOffsets"] = json.dumps(to_json(ends))
    records = spark.read.format("lograft").options(**options, columns=_COLUMNS).load()
    measured = records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("bytes"),
        "key",
    ).persist()
    try:
        positions = group_positions(settings.source)
        sections = [
            _partition_section(measured, planned),
            _group_section(measured, positions),
            _sequence_section(spark, options),
            _hot_key_section(measured, asked.hot_keys),
            _size_section(measured),
            _rate_section(measured),
            _lateness_section(measured),
        ]
        if positions and asked.commit_history:
            sections.append(_consume_section(measured, commits_of(spark, settings.source)))
    finally:
        measured.unpersist()
    now = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
    title = f"Audit of {', '.join(settings.source.topics)}"
    html = page(title, f"{settings.source.bootstrap}, {now:%Y-%m-%d %H:%M:%S} UTC", sections)
    folder = Folder(asked.folder)
    with folder.files.open_output_stream(folder.inner("audit.html")) as file:
        file.write(html.encode())
    watch.say(f"report: {folder.path('audit.html')}")
    return sections


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def _shown_time(time_ms: int, style: str) -> str:
    """Not formatted by Spark, whose time zone is the session's."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime(style)
    except OverflowError:  # a producer has written microseconds, for instance
        return f"{time_ms} ms"


def _partition_section(measured: DataFrame, planned: Sequence[Range]) -> Section:
    grouped = measured.groupBy("topic", "partition").agg(
        F.count("*"),
        F.sum("bytes"),
        F.min(F.unix_millis("timestamp")),
        F.max(F.unix_millis("timestamp")),
    )
    found = {(row[0], row[1]): row[2:] for row in _rows(grouped)}
    rows: list[tuple[Any, ...]] = []
    for one in planned:
        records, size, *times = found.get((one.topic, one.partition), (0, 0, None, None))
        oldest, newest = (None if time is None else _shown_time(time, _SECONDS) for time in times)
        hollow = max(0, one.size - records)
        place = (one.topic, one.partition)
        rows.append((*place, records, size, one.start, one.end, hollow, oldest, newest))
    return Section(
        "Partitions",
        "Offsets without a record are markers of transactions, records of aborted ones where only"
        " committed ones are read, or were compacted away.",
        (
            "topic",
            "partition",
            "records",
            "bytes of values",
            "first offset",
            "end",
            "offsets without a record",
            "oldest (UTC)",
            "newest (UTC)",
        ),
        rows,
        [(f"{row[0]}-{row[1]}", float(row[2])) for row in rows],
    )


def _group_section(measured: DataFrame, positions: Sequence[GroupPosition]) -> Section:
    """How far each group is, and how old the first record is that it has not read."""
    rows: list[tuple[Any, ...]] = []
    firsts = _times_of(measured, [one for one in positions if one.unread])
    now_ms = SystemClock().wall_ms()
    for one in positions:
        time_ms = firsts.get((one.topic, one.partition, one.next))
        waits = None if time_ms is None else round((now_ms - time_ms) / 1000, 1)
        unread = f"{one.next} to {one.end - 1}" if one.unread else None
        place = (one.group, one.topic, one.partition, one.committed, one.end)
        rows.append((*place, one.unread, unread, one.lost, waits))
    return Section(
        "Groups",
        "Unread ranges, and for how many seconds their first record has waited. Offsets"
        " are counted, those of markers and of compacted records among them. A partition without a"
        " committed offset is one that the group has not read, though it reads the topic.",
        (
            "group",
            "topic",
            "partition",
            "committed",
            "end",
            "unread",
            "unread offsets",
            "deleted unread",
            "waiting, s",
        ),
        rows,
        [(f"{one.group} {one.topic}-{one.partition}", float(one.unread)) for one in positions],
    )


def _times_of(
    measured: DataFrame, positions: Sequence[GroupPosition]
) -> dict[tuple[str, int, int], int]:
    """When the first records at or behind some positions were made."""
    if not positions:
        return {}
    spark = measured.sparkSession
    wanted = spark.createDataFrame(
        sorted({(one.topic, one.partition, one.next) for one in positions}),
        "topic string, partition int, next bigint",
    )
    behind = measured.join(F.broadcast(wanted), ["topic", "partition"])
    firsts = behind.filter("offset >= next").groupBy("topic", "partition", "next")
    found = firsts.agg(F.min_by(F.unix_millis("timestamp"), "offset"))
    return {(row[0], row[1], row[2]): row[3] for row in found.collect()}


def _sequence_section(spark: SparkSession, options: Mapping[str, str]) -> Section:
    faults = sequence_faults(headers_of(spark, read_options(options, is_streaming=False)))
    return Section(
        "Producers",
        "Batches by producer id and epoch. A gap is a jump in the producer's sequence numbers, a"
        " duplicate one that was there before; compaction leaves gaps too.",
        (
            "topic",
            "partition",
            "producer",
            "epoch",
            "batches",
            "records",
            "bytes",
            "gaps",
            "duplicates",
        ),
        _rows(faults.orderBy("topic", "partition", "producer_id", "producer_epoch").limit(500)),
    )


def _hot_key_section(measured: DataFrame, count: int) -> Section:
    total = measured.count() or 1
    grouped = measured.filter("key is not null").groupBy("topic", "key").count()
    top = grouped.orderBy(F.desc("count"), "topic", "key").limit(count)
    rows = _rows(top.select("topic", key_text(), "count"))
    shares = [(*row, round(100 * row[2] / total, 2)) for row in rows]
    return Section(
        "Hot keys",
        "The keys with the most records: a partition is as fast as its hottest key allows.",
        ("topic", "key", "records", "% of all"),
        shares,
        [(str(row[1]), float(row[2])) for row in rows],
    )


def _size_section(measured: DataFrame) -> Section:
    power = F.when(F.col("bytes") == 0, -1).otherwise(F.floor(F.log2("bytes")).cast("int"))
    grouped = measured.groupBy(power.alias("power")).agg(F.count("*"), F.sum("bytes"))
    rows = []
    for exponent, records, size in _rows(grouped.orderBy("power")):
        label = "0" if exponent < 0 else f"{1 << exponent:,} to {(2 << exponent) - 1:,}"
        rows.append((label, records, size))
    return Section(
        "Sizes",
        "Records by the size of their values in bytes.",
        ("bytes", "records", "bytes together"),
        rows,
        [(row[0], float(row[1])) for row in rows],
    )


def _rate_section(measured: DataFrame) -> Section:
    minute = F.floor(F.unix_millis("timestamp") / _MINUTE_MS)
    grouped = measured.groupBy(minute.alias("minute")).agg(F.count("*"), F.sum("bytes"))
    newest = _rows(grouped.orderBy(F.desc("minute")).limit(60))
    rows = [(_shown_time(row[0] * _MINUTE_MS, _MINUTES), *row[1:]) for row in reversed(newest)]
    return Section(
        "Records a minute",
        "By the records' own times; the last sixty minutes that have any.",
        ("minute (UTC)", "records", "bytes"),
        rows,
        [(row[0], float(row[1])) for row in rows],
    )


def _lateness_section(measured: DataFrame) -> Section:
    """How much older records are than one that was before them in their partition."""
    newest = F.expr(
        "max(unix_millis(timestamp)) over (partition by topic, partition order by offset"
        " rows between unbounded preceding and current row)"
    )
    late = measured.select((newest - F.unix_millis("timestamp")).alias("late"))
    quantiles = late.agg(
        *(F.expr(f"percentile_approx(late, {one})") for one in (0.5, 0.9, 0.99, 0.999)),
        F.max("late"),
    )
    values = _rows(quantiles)[0]
    names = ("median", "90 %", "99 %", "99.9 %", "latest")
    rows = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    return Section(
        "Lateness",
        "How many ms a record is older than the newest before it in its partition: what a watermark"
        " has to allow for.",
        ("records", "ms late, at most"),
        rows,
        [(name, float(value)) for name, value in rows],
    )


def _consume_section(measured: DataFrame, commits: DataFrame) -> Section:
    rows = _rows(consume_latencies(measured, commits).orderBy("group", "topic"))
    return Section(
        "From producing to consuming",
        "How many ms after its own time a record was committed as read. An upper bound: groups"
        " commit now and then, and compaction takes old commits away. Records before a group's"
        " first known commit are left out.",
        ("group", "topic", "records", "median", "90 %", "99 %", "longest"),
        rows,
        [(f"{row[0]} {row[1]}", float(row[3])) for row in rows],
    )
