"""Finds gaps and duplicates in the sequence numbers of idempotent producers."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

#: Sequence numbers wrap around after this many.
_WRAP: Final = 1 << 31


def sequence_faults(headers: DataFrame) -> DataFrame:
    """Returns a row for each producer in each partition: batches, records, bytes, gaps, duplicates.
    Each batch is compared with the highest number so far, so a batch after a duplicate is not a
    gap."""
    by_producer = Window.partitionBy("topic", "partition", "producer_id", "producer_epoch")
    in_order = by_producer.orderBy("base_offset")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    # Length before compaction, which removes records but keeps the batch's first and last offset.
    length = F.col("last_offset") - F.col("base_offset") + 1
    base = F.col("base_sequence").cast("bigint")
    half = _WRAP // 2
    # From the end of the previous batch to the start of this one, in the shorter direction.
    distance = F.pmod(base - F.lag(base + length).over(in_order) + half, F.lit(_WRAP)) - half
    return (
        headers.filter("producer_id >= 0 and not is_control")
        .withColumn("_length", length)
        .withColumn("_step", length + F.coalesce(distance, F.lit(0)))
        # Numbers without wrap-around, counted from the producer's first batch in the log.
        .withColumn("_end", F.sum("_step").over(so_far))
        .withColumn("_begin", F.col("_end") - F.col("_length"))
        .withColumn("_expected", F.max("_end").over(before))
        .groupBy("topic", "partition", "producer_id", "producer_epoch")
        .agg(
            F.count("*").alias("batches"),
            F.sum("records").alias("records"),
            F.sum("size_bytes").alias("bytes"),
            F.count_if(F.col("_begin") > F.col("_expected")).alias("gaps"),
            F.count_if(F.col("_begin") < F.col("_expected")).alias("duplicates"),
        )
    )
