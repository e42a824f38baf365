"""Writes topics to a table. Every record is exactly once in the table or in the dead letters.

The values of a micro-batch are parsed with the schema (`lake_values.py`). Records that do not match
it are written to the dead letters under the batch ID, the others are staged, and then the batch is
published atomically. Each of these steps recognises a batch that Spark repeats after a crash.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lograft.spark.pipelines.checkpoints import (
    CHECKPOINT,
    check_checkpoint,
    claim,
    write_cached_once,
)
from lograft.spark.pipelines.folders import BATCH, BatchTable
from lograft.spark.pipelines.lake_values import values_of
from lograft.spark.pipelines.record_frames import dead_letters, fields_of
from lograft.spark.pipelines.running import RunObserver, run_query, stream_of
from lograft.spark.pipelines.settings import Lake, Settings
from lograft.spark.pipelines.tables import TableWriter, table_writer


def lake(spark: SparkSession, settings: Settings, observer: RunObserver) -> None:
    config = settings.lake
    assert config is not None
    table = _LakeTable(settings, config, observer.on_message)
    table.values.check(spark)
    check_checkpoint(table.folder)
    checkpoint = table.folder.path(CHECKPOINT)
    writer = stream_of(spark, settings).writeStream.foreachBatch(table.add)
    run_query(writer.queryName("lake").option("checkpointLocation", checkpoint), settings, observer)
    table.compact_all(spark)


@contextmanager
def _persist(frame: DataFrame) -> Iterator[DataFrame]:
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


class _LakeTable:
    """The table and its dead letters. Spark Connect pickles it and runs foreachBatch on the server,
    so it must not refer to a session."""

    def __init__(self, settings: Settings, config: Lake, report: Callable[[str], None]) -> None:
        self._source = settings.source
        self._config = config
        self.folder = BatchTable(config.folder)
        self.values = values_of(config, self.folder, report)
        self._writer: TableWriter = table_writer(config.format, self.folder, config.partition_by)

    def add(self, records: DataFrame, batch_id: int) -> None:
        """Adds a micro-batch; called by foreachBatch."""
        query = claim(self.folder)
        if self._writer.has(batch_id):
            return
        with _persist(records) as records:
            parsed, schema = self.values.parse(records)
            # Parsed once for both the dead letters and the table.
            with _persist(parsed) as frame:
                self._write_dead_letters(dead_letters(frame), query, batch_id)
                rows = fields_of(frame, schema, reserved=(BATCH,))
                self._writer.write(self._with_partitions(rows), batch_id)
        every = self._config.compact_every
        if every and batch_id % every == every - 1:
            self._writer.compact(records.sparkSession)

    def compact_all(self, spark: SparkSession) -> None:
        if self._config.compact_every:
            self._writer.compact(spark)

    def _with_partitions(self, frame: DataFrame) -> DataFrame:
        if "date" not in self._config.partition_by or "date" in frame.columns:
            return frame
        time_column = self._config.event_time or "_timestamp"
        return frame.withColumn("date", F.to_date(F.col(time_column).cast("timestamp")))

    # ── dead letters ─────────────────────────────────────────────────────────────────────────

    def _write_dead_letters(self, records: DataFrame, query: str, batch_id: int) -> None:
        topic = self._config.dead_letter_topic
        if topic is None:
            table = BatchTable(self.folder.path("_dead"))
            if not table.has(batch_id) and not records.isEmpty():
                records.write.parquet(table.create_staging(f"batch-{batch_id}"))
                table.add(batch_id)
            return
        options = self._source.options() | {"topic": topic}
        write_cached_once(records, options, f"lake-{query}", batch_id)
