"""Topics become a table. Every record of the topics is once in it, or once among the dead letters.

A micro-batch is parsed by the schema (declared, or inferred from the first records and grown with
new fields), its bad records are written to the dead letters under the batch's name, its good ones
beside the table, and then the batch is published in one step. A batch that Spark brings again after
a crash is known at each of these points.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lograft.spark.pipelines.folders import BatchTable
from lograft.spark.pipelines.json_schemas import grown
from lograft.spark.pipelines.json_values import (
    dead_letters,
    declared,
    fields_of,
    parsed,
    schema_of,
    unknown_fields,
    with_unknown_fields,
)
from lograft.spark.pipelines.running import Watch, follow, stream_of
from lograft.spark.pipelines.settings import Lake, Settings
from lograft.spark.pipelines.tables import TableWriter, table_writer

log = logging.getLogger("lograft.spark")

_SCHEMA: Final = "_schema.json"


def lake(spark: SparkSession, settings: Settings, watch: Watch) -> None:
    asked = settings.lake
    assert asked is not None
    table = _LakeTable(settings, asked, watch.say)
    checkpoint = table.folder.path("_checkpoint")
    writer = stream_of(spark, settings).writeStream.foreachBatch(table.add)
    follow(writer.queryName("lake").option("checkpointLocation", checkpoint), settings, watch)
    table.compact_all(spark)


class _LakeTable:
    """With Spark Connect it is sent to the server, where foreachBatch runs: so it keeps no session,
    and nobody there hears what it says."""

    def __init__(self, settings: Settings, asked: Lake, say: Callable[[str], None]) -> None:
        self._source = settings.source
        self._asked = asked
        self._say = say
        self.folder = BatchTable(asked.folder)
        self._writer: TableWriter = table_writer(asked.format, self.folder, asked.partition_by)
        self._schema = self._known_schema()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_say": log.info}

    def add(self, records: DataFrame, batch_id: int) -> None:
        """One micro-batch, for foreachBatch."""
        if self._writer.has(batch_id):
            return
        records = records.persist()
        try:
            schema = self._schema_for(records)
            frame = parsed(records, schema)
            self._set_aside(dead_letters(frame), batch_id)
            self._writer.write(self._with_partitions(fields_of(frame, schema)), batch_id)
        finally:
            records.unpersist()
        every = self._asked.compact_every
        if every and batch_id % every == every - 1:
            self._writer.compact(records.sparkSession)

    def compact_all(self, spark: SparkSession) -> None:
        if self._asked.compact_every:
            self._writer.compact(spark)

    # ── schema ───────────────────────────────────────────────────────────────────────────────

    def _known_schema(self) -> StructType | None:
        if self._asked.schema is not None:
            return declared(self._asked.schema)
        stored = self.folder.read_json(_SCHEMA)
        return None if stored is None else StructType.fromJson(stored)

    def _schema_for(self, records: DataFrame) -> StructType:
        """The one that all files of the table fit in, written down before the first of them."""
        known = self._schema
        if self._asked.schema is not None:
            assert known is not None
            return known
        if known is None or not known.fields:
            found = schema_of(records)
        else:
            news = unknown_fields(records, known)
            if not news:
                return known
            found = grown(known, schema_of(with_unknown_fields(records, news)))
            self._say(f"new fields: {', '.join(sorted(news))}")
        self.folder.write_json(found.jsonValue(), _SCHEMA)
        self._schema = found
        return found

    def _with_partitions(self, frame: DataFrame) -> DataFrame:
        if "date" not in self._asked.partition_by or "date" in frame.columns:
            return frame
        moment = self._asked.event_time
        when = F.col("_timestamp" if moment is None else moment).cast("timestamp")
        return frame.withColumn("date", F.to_date(when))

    # ── dead letters ─────────────────────────────────────────────────────────────────────────

    def _set_aside(self, bad: DataFrame, batch_id: int) -> None:
        topic = self._asked.dead_letter_topic
        if topic is None:
            aside = BatchTable(self.folder.path("_dead"))
            if not aside.has(batch_id) and not bad.isEmpty():
                bad.write.parquet(aside.staging(f"batch-{batch_id}"))
                aside.add(batch_id)
            return
        # Under a name, so that the topic knows the batch when it comes again.
        name = {"txnAppId": f"lake-{self._asked.folder}", "txnVersion": str(batch_id)}
        writing = bad.write.format("lograft").mode("append").options(**self._source.options())
        writing.options(topic=topic, delivery="exactly-once", **name).save()
