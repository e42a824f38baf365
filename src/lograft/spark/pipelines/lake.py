"""Topics become a table. Every record of the topics is once in it, or once among the dead letters.

A micro-batch is parsed by the schema (`lake_values.py`), its bad records are written to the dead
letters under the batch's name, its good ones beside the table, and then the batch is published in
one step. A batch that Spark brings again after a crash is known at each of these points.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lograft.spark.pipelines.checkpoints import (
    CHECKPOINT,
    check_checkpoint,
    take,
    write_cached_once,
)
from lograft.spark.pipelines.folders import BATCH, BatchTable
from lograft.spark.pipelines.lake_values import values_of
from lograft.spark.pipelines.record_frames import dead_letters, fields_of
from lograft.spark.pipelines.running import Watch, follow, stream_of
from lograft.spark.pipelines.settings import Lake, Settings
from lograft.spark.pipelines.tables import TableWriter, table_writer


def lake(spark: SparkSession, settings: Settings, watch: Watch) -> None:
    asked = settings.lake
    assert asked is not None
    table = _LakeTable(settings, asked, watch.say)
    table.values.check(spark)
    check_checkpoint(table.folder)
    checkpoint = table.folder.path(CHECKPOINT)
    writer = stream_of(spark, settings).writeStream.foreachBatch(table.add)
    follow(writer.queryName("lake").option("checkpointLocation", checkpoint), settings, watch)
    table.compact_all(spark)


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


class _LakeTable:
    """With Spark Connect it is sent to the server, where foreachBatch runs: so it keeps no
    session."""

    def __init__(self, settings: Settings, asked: Lake, say: Callable[[str], None]) -> None:
        self._source = settings.source
        self._asked = asked
        self.folder = BatchTable(asked.folder)
        self.values = values_of(asked, self.folder, say)
        self._writer: TableWriter = table_writer(asked.format, self.folder, asked.partition_by)

    def add(self, records: DataFrame, batch_id: int) -> None:
        """One micro-batch, for foreachBatch."""
        query = take(self.folder)
        if self._writer.has(batch_id):
            return
        with _persisted(records) as records:
            parsed, schema = self.values.parse(records)
            # Values are parsed once, for the dead letters and for the table.
            with _persisted(parsed) as frame:
                self._set_aside(dead_letters(frame), query, batch_id)
                rows = fields_of(frame, schema, taken=(BATCH,))
                self._writer.write(self._with_partitions(rows), batch_id)
        every = self._asked.compact_every
        if every and batch_id % every == every - 1:
            self._writer.compact(records.sparkSession)

    def compact_all(self, spark: SparkSession) -> None:
        if self._asked.compact_every:
            self._writer.compact(spark)

    def _with_partitions(self, frame: DataFrame) -> DataFrame:
        if "date" not in self._asked.partition_by or "date" in frame.columns:
            return frame
        moment = self._asked.event_time
        when = F.col("_timestamp" if moment is None else moment).cast("timestamp")
        return frame.withColumn("date", F.to_date(when))

    # ── dead letters ─────────────────────────────────────────────────────────────────────────

    def _set_aside(self, bad: DataFrame, query: str, batch_id: int) -> None:
        topic = self._asked.dead_letter_topic
        if topic is None:
            aside = BatchTable(self.folder.path("_dead"))
            if not aside.has(batch_id) and not bad.isEmpty():
                bad.write.parquet(aside.staging(f"batch-{batch_id}"))
                aside.add(batch_id)
            return
        options = self._source.options() | {"topic": topic}
        write_cached_once(bad, options, f"lake-{query}", batch_id)
