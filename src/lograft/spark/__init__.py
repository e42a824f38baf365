"""Topics as tables: `format("lograft")` for batches and streams, in both directions, without a jar.

Options, columns and offsets are those of Spark's own Kafka source and sink, so a query and its
checkpoint move between the two. `options` `offsets` `planning` `filters` are pure; `cluster` asks
brokers from the driver; `batch_reader` and `stream_reader` plan there and read in tasks.

`register(spark)` makes the format available in a session. Where the environment is activated, Spark
also discovers it by itself, through `pyspark_lograft`.
"""

from lograft.spark.registration import register

__all__ = ["register"]
