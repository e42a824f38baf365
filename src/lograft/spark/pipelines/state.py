"""Maintains a table of the latest value of every key, like a compacted topic, for use in joins.

Each micro-batch is merged with the current snapshot and written as the next one; readers see the
previous snapshot until the new one is complete. A record without a value deletes its key.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lograft.spark.pipelines.checkpoints import CHECKPOINT, check_checkpoint, claim
from lograft.spark.pipelines.folders import SnapshotTable
from lograft.spark.pipelines.running import RunObserver, run_query, stream_of
from lograft.spark.pipelines.settings import Settings


def state(spark: SparkSession, settings: Settings, observer: RunObserver) -> None:
    config = settings.state
    assert config is not None
    table = StateTable(SnapshotTable(config.folder))
    check_checkpoint(table.snapshots)
    writer = stream_of(spark, settings).writeStream.foreachBatch(table.merge).queryName("state")
    writer = writer.option("checkpointLocation", table.snapshots.path(CHECKPOINT))
    run_query(writer, settings, observer)


class StateTable:
    def __init__(self, snapshots: SnapshotTable) -> None:
        self.snapshots = snapshots

    def merge(self, records: DataFrame, batch_id: int) -> None:
        """Merges a micro-batch; called by foreachBatch."""
        claim(self.snapshots)
        if self.snapshots.has(batch_id):
            return
        updates = records.filter(F.col("key").isNotNull()).select(
            "topic", "key", "value", "partition", "offset", "timestamp"
        )
        current = self.current(records.sparkSession)
        rows = updates.withColumn("_is_new", F.lit(True))
        if current is not None:
            rows = rows.unionByName(current.withColumn("_is_new", F.lit(False)))
        snapshot = _latest(rows).filter("value is not null").drop("_is_new")
        snapshot.write.parquet(self.snapshots.create_staging(f"v-{batch_id}"))
        self.snapshots.switch(batch_id)

    def current(self, spark: SparkSession) -> DataFrame | None:
        path = self.snapshots.current_path()
        return None if path is None else spark.read.parquet(path)


def _latest(rows: DataFrame) -> DataFrame:
    """Returns one row for each key: the record with the highest offset in a partition, regardless
    of its timestamp. If a key is in several partitions, as after partitions were added, the record
    with the latest timestamp among them."""
    of_key = Window.partitionBy("topic", "key")
    last = Window.partitionBy("topic", "key", "partition").orderBy(
        F.desc("_is_new"), F.desc("offset")
    )
    newest = of_key.orderBy(F.desc("timestamp"), F.desc("_is_new"), F.desc("partition"))
    by_key = rows.repartition("topic", "key")  # for both windows
    lasts = by_key.withColumn("_rank", F.row_number().over(last)).filter("_rank = 1")
    return lasts.withColumn("_rank", F.row_number().over(newest)).filter("_rank = 1").drop("_rank")
