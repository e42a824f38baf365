"""The latest value of every key as a table: what a compacted topic means, ready to be joined.

Each micro-batch is joined with the table as it was and written as its next snapshot; readers see
the one before until the new one is whole. A record without a value deletes its key.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lograft.spark.pipelines.checkpoints import CHECKPOINT, check_checkpoint, take
from lograft.spark.pipelines.folders import SnapshotTable
from lograft.spark.pipelines.running import Watch, follow, stream_of
from lograft.spark.pipelines.settings import Settings


def state(spark: SparkSession, settings: Settings, watch: Watch) -> None:
    asked = settings.state
    assert asked is not None
    table = StateTable(SnapshotTable(asked.folder))
    check_checkpoint(table.snapshots)
    writer = stream_of(spark, settings).writeStream.foreachBatch(table.merge).queryName("state")
    writer = writer.option("checkpointLocation", table.snapshots.path(CHECKPOINT))
    follow(writer, settings, watch)


class StateTable:
    def __init__(self, snapshots: SnapshotTable) -> None:
        self.snapshots = snapshots

    def merge(self, records: DataFrame, batch_id: int) -> None:
        """One micro-batch, for foreachBatch."""
        take(self.snapshots)
        if self.snapshots.has(batch_id):
            return
        news = records.filter(F.col("key").isNotNull()).select(
            "topic", "key", "value", "partition", "offset", "timestamp"
        )
        known = self.current(records.sparkSession)
        together = news.withColumn("_is_new", F.lit(True))
        if known is not None:
            together = together.unionByName(known.withColumn("_is_new", F.lit(False)))
        rows = _latest(together).filter("value is not null").drop("_is_new")
        rows.write.parquet(self.snapshots.staging(f"v-{batch_id}"))
        self.snapshots.switch(batch_id)

    def current(self, spark: SparkSession) -> DataFrame | None:
        path = self.snapshots.current_path()
        return None if path is None else spark.read.parquet(path)


def _latest(rows: DataFrame) -> DataFrame:
    """One row for each key. In a partition the last counts, whatever its time says. A key that is
    in several, as after partitions were added, is where its newest record is."""
    of_key = Window.partitionBy("topic", "key")
    last = Window.partitionBy("topic", "key", "partition").orderBy(
        F.desc("_is_new"), F.desc("offset")
    )
    newest = of_key.orderBy(F.desc("timestamp"), F.desc("_is_new"), F.desc("partition"))
    by_key = rows.repartition("topic", "key")  # for both windows
    lasts = by_key.withColumn("_rank", F.row_number().over(last)).filter("_rank = 1")
    return lasts.withColumn("_rank", F.row_number().over(newest)).filter("_rank = 1").drop("_rank")
