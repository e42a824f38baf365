"""Reports the contents of topics and the progress of the groups that read them, as an HTML page.

Reads the records once (keys, sizes, timestamps), the headers of their batches once (producers and
sequence numbers), the committed offsets of every group, and the history of their commits as far as
compaction has kept it. Writes nothing except the report.
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
from lograft.spark.pipelines.running import RunObserver
from lograft.spark.pipelines.sequences import sequence_faults
from lograft.spark.pipelines.settings import Settings
from lograft.spark.planning import Range

_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = "%Y-%m-%d %H:%M:%S"
_MINUTES: Final = "%Y-%m-%d %H:%M"
_MINUTE_MS: Final = 60_000


def audit(spark: SparkSession, settings: Settings, observer: RunObserver) -> list[Section]:
    """Writes the report to `audit.folder` and returns its sections."""
    config = settings.audit
    assert config is not None
    options = settings.source.batch_options()
    planned = BatchReader(read_options(options, is_streaming=False)).ranges()
    # Fixes the end offsets, so that all sections cover the same records.
    ends = {TopicPartition(part.topic, part.partition): part.end for part in planned}
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
            _hot_key_section(measured, config.hot_keys),
            _size_section(measured),
            _rate_section(measured),
            _lateness_section(measured),
        ]
        if positions and config.commit_history:
            sections.append(_consume_section(measured, commits_of(spark, settings.source)))
    finally:
        measured.unpersist()
    now = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
    title = f"Audit of {', '.join(settings.source.topics)}"
    html = page(title, f"{settings.source.bootstrap}, {now:%Y-%m-%d %H:%M:%S} UTC", sections)
    folder = Folder(config.folder)
    with folder.files.open_output_stream(folder.inner("audit.html")) as file:
        file.write(html.encode())
    observer.on_message(f"report: {folder.path('audit.html')}")
    return sections


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def _format_time(time_ms: int, style: str) -> str:
    """Formats in UTC; Spark would use the session's time zone."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime(style)
    except OverflowError:  # for example, a producer that writes microseconds
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
    for part in planned:
        records, size, *times = found.get((part.topic, part.partition), (0, 0, None, None))
        oldest, newest = (None if time is None else _format_time(time, _SECONDS) for time in times)
        empty = max(0, part.size - records)
        partition = (part.topic, part.partition)
        rows.append((*partition, records, size, part.start, part.end, empty, oldest, newest))
    return Section(
        "Partitions",
        "Offsets without a record belong to transaction markers, to compacted records, or, with"
        " read_committed, to records of aborted transactions.",
        (
            "topic",
            "partition",
            "records",
            "value bytes",
            "log start offset",
            "log end offset",
            "offsets without a record",
            "oldest (UTC)",
            "newest (UTC)",
        ),
        rows,
        [(f"{row[0]}-{row[1]}", float(row[2])) for row in rows],
    )


def _group_section(measured: DataFrame, positions: Sequence[GroupPosition]) -> Section:
    """Lists each group's lag and the age of its first unread record."""
    rows: list[tuple[Any, ...]] = []
    times = _times_of(measured, [position for position in positions if position.lag])
    now_ms = SystemClock().wall_ms()
    for position in positions:
        time_ms = times.get((position.topic, position.partition, position.next))
        age = None if time_ms is None else round((now_ms - time_ms) / 1000, 1)
        unread = f"{position.next} to {position.end - 1}" if position.lag else None
        rows.append(
            (
                position.group,
                position.topic,
                position.partition,
                position.committed,
                position.end,
                position.lag,
                unread,
                position.lost_count,
                age,
            )
        )
    return Section(
        "Groups",
        "Unread ranges of each group, and the age of their first record. Counts are offsets,"
        " including those of transaction markers and compacted records. A partition without a"
        " committed offset was not read by the group, which read other partitions of the topic.",
        (
            "group",
            "topic",
            "partition",
            "committed offset",
            "log end offset",
            "lag",
            "unread offsets",
            "deleted unread",
            "age of first unread, s",
        ),
        rows,
        [
            (f"{position.group} {position.topic}-{position.partition}", float(position.lag))
            for position in positions
        ],
    )


def _times_of(
    measured: DataFrame, positions: Sequence[GroupPosition]
) -> dict[tuple[str, int, int], int]:
    """Returns the timestamp of the first record at or after each position."""
    if not positions:
        return {}
    spark = measured.sparkSession
    starts = spark.createDataFrame(
        sorted({(position.topic, position.partition, position.next) for position in positions}),
        "topic string, partition int, next bigint",
    )
    candidates = measured.join(F.broadcast(starts), ["topic", "partition"])
    firsts = candidates.filter("offset >= next").groupBy("topic", "partition", "next")
    found = firsts.agg(F.min_by(F.unix_millis("timestamp"), "offset"))
    return {(row[0], row[1], row[2]): row[3] for row in found.collect()}


def _sequence_section(spark: SparkSession, options: Mapping[str, str]) -> Section:
    faults = sequence_faults(headers_of(spark, read_options(options, is_streaming=False)))
    return Section(
        "Producers",
        "Batches by producer ID and epoch. A gap is a jump in the producer's sequence numbers, a"
        " duplicate is a sequence number that occurred before. Compaction leaves gaps, too.",
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
        "The keys with the most records. They limit how evenly load spreads over partitions.",
        ("topic", "key", "records", "% of records"),
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
        "Records by value size in bytes.",
        ("bytes", "records", "total bytes"),
        rows,
        [(row[0], float(row[1])) for row in rows],
    )


def _rate_section(measured: DataFrame) -> Section:
    minute = F.floor(F.unix_millis("timestamp") / _MINUTE_MS)
    grouped = measured.groupBy(minute.alias("minute")).agg(F.count("*"), F.sum("bytes"))
    newest = _rows(grouped.orderBy(F.desc("minute")).limit(60))
    rows = [(_format_time(row[0] * _MINUTE_MS, _MINUTES), *row[1:]) for row in reversed(newest)]
    return Section(
        "Records per minute",
        "By record timestamp; the last sixty minutes that contain records.",
        ("minute (UTC)", "records", "bytes"),
        rows,
        [(row[0], float(row[1])) for row in rows],
    )


def _lateness_section(measured: DataFrame) -> Section:
    """Measures how much older records are than the newest record before them in their partition."""
    newest = F.expr(
        "max(unix_millis(timestamp)) over (partition by topic, partition order by offset"
        " rows between unbounded preceding and current row)"
    )
    late = measured.select((newest - F.unix_millis("timestamp")).alias("late"))
    quantiles = late.agg(
        *(F.expr(f"percentile_approx(late, {quantile})") for quantile in (0.5, 0.9, 0.99, 0.999)),
        F.max("late"),
    )
    values = _rows(quantiles)[0]
    names = ("median", "p90", "p99", "p99.9", "latest")
    rows = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    return Section(
        "Lateness",
        "By how many ms a record is older than the newest record before it in its partition. A"
        " watermark has to allow for this delay.",
        ("quantile", "ms late, at most"),
        rows,
        [(name, float(value)) for name, value in rows],
    )


def _consume_section(measured: DataFrame, commits: DataFrame) -> Section:
    rows = _rows(consume_latencies(measured, commits).orderBy("group", "topic"))
    return Section(
        "Time from production to commit",
        "Time in ms from a record's timestamp until a group committed it. This is an upper bound:"
        " groups commit at intervals, and compaction removes old commits. Records before a group's"
        " first known commit are not counted.",
        ("group", "topic", "records", "median", "p90", "p99", "maximum"),
        rows,
        [(f"{row[0]} {row[1]}", float(row[3])) for row in rows],
    )
