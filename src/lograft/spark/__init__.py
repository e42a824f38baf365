"""Spark data source `format("lograft")`: reads and writes topics, in batches and streams, no jar.

Options, columns and offsets are those of Spark's own Kafka source and sink, so a query and its
checkpoint can move between the two. `options`, `offsets`, `planning` and `filters` are pure;
`cluster` sends the driver's requests to the brokers; `batch_reader` and `stream_reader` plan in the
driver and read in tasks.

`register(spark)` makes the format available in a session. In an activated environment Spark also
discovers it through `pyspark_lograft`.
"""

from lograft.spark.registration import register

__all__ = ["register"]
