"""Records with what became of their values: the fields of the good ones, and the dead letters.

Between both stands a frame with the columns of PLACE, `key`, `value`, the struct `_fields`, and
`_problem`, which is null where the fields are good.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

#: Where a record is from, beside its fields.
PLACE: Final = ("_topic", "_partition", "_offset", "_timestamp", "_key")
FIELDS: Final = "_fields"
_PROBLEM: Final = "_problem"


def key_text() -> Column:
    """A key as text that every reader of a table takes: one that is no UTF-8 in hexadecimal."""
    return F.expr("coalesce(try_validate_utf8(cast(key as string)), hex(key))")


def decoded(records: DataFrame, fields: Column, *problems: tuple[Column, str]) -> DataFrame:
    """`fields` is the struct that the value holds; of the problems, the first that is true counts.
    A record without a value always has one."""
    places = [
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        key_text().alias("_key"),
    ]
    frame = records.select(*places, "key", "value", fields.alias(FIELDS))
    problem = F.when(F.col("value").isNull(), "the record has no value")
    for is_so, sentence in problems:
        problem = problem.when(is_so, sentence)
    return frame.withColumn(_PROBLEM, problem)


def fields_of(frame: DataFrame, schema: StructType, *, taken: tuple[str, ...] = ()) -> DataFrame:
    """The records without a problem: where they are from, and their fields. A field whose name is
    one of PLACE or otherwise taken gets a `_` behind it."""
    good = frame.filter(F.col(_PROBLEM).isNull())
    own = {*PLACE, *taken}
    fields = [
        F.col(FIELDS).getField(one.name).alias(one.name + "_" * (one.name.lower() in own))
        for one in schema.fields
    ]
    return good.select(*PLACE, *fields)


def dead_letters(frame: DataFrame) -> DataFrame:
    """The others as records for a topic: as they came, with headers that say from where and why."""

    def header(name: str, value: Column) -> Column:
        return F.struct(
            F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value")
        )

    return frame.filter(F.col(_PROBLEM).isNotNull()).select(
        "key",
        "value",
        F.array(
            header("dead-letter.topic", F.col("_topic")),
            header("dead-letter.partition", F.col("_partition")),
            header("dead-letter.offset", F.col("_offset")),
            header("dead-letter.reason", F.col(_PROBLEM)),
        ).alias("headers"),
    )
