"""Aggregates over event time: tumbling, sliding and session windows, into a topic or a table.

A window of mode append is told once, when the watermark has passed its end; records that come
later than that are not counted any more. With mode complete the table is always all windows so far.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.checkpoints import CHECKPOINT, check_checkpoint, take, write_once
from lograft.spark.pipelines.folders import BatchTable, Folder, SnapshotTable
from lograft.spark.pipelines.json_values import declared, parsed, schema_of
from lograft.spark.pipelines.record_frames import fields_of
from lograft.spark.pipelines.running import Watch, follow, stream_of
from lograft.spark.pipelines.settings import Settings, Windows

_TIME = "_event_time"


def windows(spark: SparkSession, settings: Settings, watch: Watch) -> None:
    asked = settings.windows
    assert asked is not None
    folder = Folder(asked.folder)
    check_checkpoint(folder)
    frame = aggregated(stream_of(spark, settings), _schema(spark, settings, folder), asked)
    if asked.topic is not None:
        frame = as_records(frame, asked)
    writer = frame.writeStream.outputMode(asked.mode).queryName("windows")
    writer = writer.option("checkpointLocation", folder.path(CHECKPOINT))
    if asked.topic is not None:
        options = settings.source.options() | {"topic": asked.topic}
        writer = writer.foreachBatch(_Told(folder, options).add)
    elif asked.mode == "append":
        writer = writer.foreachBatch(_Appended(folder, BatchTable(folder.path("table"))).add)
    else:
        writer = writer.foreachBatch(_Replaced(folder, SnapshotTable(folder.path("table"))).add)
    follow(writer, settings, watch)


def aggregated(records: DataFrame, schema: StructType, asked: Windows) -> DataFrame:
    """The columns window_start, window_end, those grouped by, and the aggregates."""
    rows = fields_of(parsed(records, schema), schema)
    moment = F.col("_timestamp" if asked.event_time is None else asked.event_time)
    timed = rows.withColumn(_TIME, moment.cast("timestamp")).withWatermark(_TIME, asked.watermark)
    grouped = timed.groupBy(_window(asked).alias("_window"), *map(F.col, asked.group_by))
    counted = grouped.agg(*(F.expr(sql).alias(name) for name, sql in asked.aggregates.items()))
    return counted.select(
        F.col("_window.start").alias("window_start"),
        F.col("_window.end").alias("window_end"),
        *asked.group_by,
        *asked.aggregates,
    )


def _window(asked: Windows) -> Column:
    if asked.session_gap is not None:
        return F.session_window(_TIME, asked.session_gap)
    assert asked.window is not None
    return F.window(_TIME, asked.window, asked.slide or asked.window)


def as_records(frame: DataFrame, asked: Windows) -> DataFrame:
    """JSON, with the window and its group as the key: a compacted topic keeps the newest."""
    key = F.to_json(F.struct("window_start", *asked.group_by))
    return frame.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))


def _schema(spark: SparkSession, settings: Settings, folder: Folder) -> StructType:
    """Declared, or inferred once from what is in the topics now, and kept."""
    asked = settings.windows
    assert asked is not None
    if asked.schema is not None:
        return declared(asked.schema)
    stored = folder.read_json("_schema.json")
    if stored is not None:
        return StructType.fromJson(stored)
    reading = spark.read.format("lograft").options(**settings.source.batch_options())
    found = schema_of(reading.option("columns", "value").load())
    if not found.fields:
        raise InvalidConfig(
            "there are no JSON records in the topics to infer a schema from: set windows.schema"
        )
    folder.write_json(found.jsonValue(), "_schema.json")
    return found


class _Told:
    """Into a topic. Not by the sink for streams, which Spark lets have no mode update."""

    def __init__(self, folder: Folder, options: Mapping[str, str]) -> None:
        self._folder = folder
        self._options = options

    def add(self, rows: DataFrame, batch_id: int) -> None:
        write_once(rows, self._options, f"windows-{take(self._folder)}", batch_id)


class _Appended:
    def __init__(self, folder: Folder, table: BatchTable) -> None:
        self._folder = folder
        self._table = table

    def add(self, rows: DataFrame, batch_id: int) -> None:
        take(self._folder)
        if not self._table.has(batch_id):
            rows.coalesce(1).write.parquet(self._table.staging(f"batch-{batch_id}"))
            self._table.add(batch_id)


class _Replaced:
    def __init__(self, folder: Folder, table: SnapshotTable) -> None:
        self._folder = folder
        self._table = table

    def add(self, rows: DataFrame, batch_id: int) -> None:
        take(self._folder)
        if not self._table.has(batch_id):
            rows.coalesce(1).write.parquet(self._table.staging(f"v-{batch_id}"))
            self._table.switch(batch_id)
