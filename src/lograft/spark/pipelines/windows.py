"""Aggregates over event time in tumbling, sliding or session windows, into a topic or a table.

In mode append, a window is written once, after the watermark has passed its end; records that
arrive later are not counted. In mode complete, the table always contains all windows so far."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.checkpoints import CHECKPOINT, check_checkpoint, claim, write_once
from lograft.spark.pipelines.folders import BatchTable, Folder, SnapshotTable
from lograft.spark.pipelines.json_values import parse_schema, parse_values, schema_of
from lograft.spark.pipelines.record_frames import fields_of
from lograft.spark.pipelines.running import RunObserver, run_query, stream_of
from lograft.spark.pipelines.settings import Settings, Windows

_TIME = "_event_time"


def windows(spark: SparkSession, settings: Settings, observer: RunObserver) -> None:
    config = settings.windows
    assert config is not None
    folder = Folder(config.folder)
    check_checkpoint(folder)
    frame = aggregate(stream_of(spark, settings), _schema(spark, settings, folder), config)
    if config.topic is not None:
        frame = as_records(frame, config)
    writer = frame.writeStream.outputMode(config.mode).queryName("windows")
    writer = writer.option("checkpointLocation", folder.path(CHECKPOINT))
    if config.topic is not None:
        options = settings.source.options() | {"topic": config.topic}
        writer = writer.foreachBatch(_TopicWriter(folder, options).add)
    elif config.mode == "append":
        writer = writer.foreachBatch(_AppendWriter(folder, BatchTable(folder.path("table"))).add)
    else:
        writer = writer.foreachBatch(
            _SnapshotWriter(folder, SnapshotTable(folder.path("table"))).add
        )
    run_query(writer, settings, observer)


def aggregate(records: DataFrame, schema: StructType, config: Windows) -> DataFrame:
    """Returns the columns window_start, window_end, the grouping columns and the aggregates."""
    rows = fields_of(parse_values(records, schema), schema)
    event_time = F.col(config.event_time or "_timestamp")
    timed = rows.withColumn(_TIME, event_time.cast("timestamp")).withWatermark(
        _TIME, config.watermark
    )
    grouped = timed.groupBy(_window(config).alias("_window"), *map(F.col, config.group_by))
    aggregates = grouped.agg(*(F.expr(sql).alias(name) for name, sql in config.aggregates.items()))
    return aggregates.select(
        F.col("_window.start").alias("window_start"),
        F.col("_window.end").alias("window_end"),
        *config.group_by,
        *config.aggregates,
    )


def _window(config: Windows) -> Column:
    if config.session_gap is not None:
        return F.session_window(_TIME, config.session_gap)
    assert config.window is not None
    return F.window(_TIME, config.window, config.slide or config.window)


def as_records(frame: DataFrame, config: Windows) -> DataFrame:
    """Returns JSON records whose key is the window and its group, so that a compacted topic keeps
    the latest result of each window."""
    key = F.to_json(F.struct("window_start", *config.group_by))
    return frame.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))


def _schema(spark: SparkSession, settings: Settings, folder: Folder) -> StructType:
    """Returns the declared schema, or one inferred once from the current records and stored."""
    config = settings.windows
    assert config is not None
    if config.schema is not None:
        return parse_schema(config.schema)
    stored = folder.read_json("_schema.json")
    if stored is not None:
        return StructType.fromJson(stored)
    reader = spark.read.format("lograft").options(**settings.source.batch_options())
    found = schema_of(reader.option("columns", "value").load())
    if not found.fields:
        raise InvalidConfig(
            "the topics have no JSON records to infer a schema from: set windows.schema"
        )
    folder.write_json(found.jsonValue(), "_schema.json")
    return found


class _TopicWriter:
    """Writes to a topic with batch writes, because Spark does not allow streaming sinks in Python
    to use mode update."""

    def __init__(self, folder: Folder, options: Mapping[str, str]) -> None:
        self._folder = folder
        self._options = options

    def add(self, rows: DataFrame, batch_id: int) -> None:
        write_once(rows, self._options, f"windows-{claim(self._folder)}", batch_id)


class _AppendWriter:
    def __init__(self, folder: Folder, table: BatchTable) -> None:
        self._folder = folder
        self._table = table

    def add(self, rows: DataFrame, batch_id: int) -> None:
        claim(self._folder)
        if not self._table.has(batch_id):
            rows.coalesce(1).write.parquet(self._table.create_staging(f"batch-{batch_id}"))
            self._table.add(batch_id)


class _SnapshotWriter:
    def __init__(self, folder: Folder, table: SnapshotTable) -> None:
        self._folder = folder
        self._table = table

    def add(self, rows: DataFrame, batch_id: int) -> None:
        claim(self._folder)
        if not self._table.has(batch_id):
            rows.coalesce(1).write.parquet(self._table.create_staging(f"v-{batch_id}"))
            self._table.switch(batch_id)
