"""Separates records whose values were decoded from dead letters.

The intermediate frame has the columns of PLACE, `key`, `value`, the struct `_fields`, and
`_problem`, which is null if the value was decoded."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

#: Columns that identify a record, next to its fields.
PLACE: Final = ("_topic", "_partition", "_offset", "_timestamp", "_key")
FIELDS: Final = "_fields"
_PROBLEM: Final = "_problem"


def key_text() -> Column:
    """Returns the key as text; a key that is not valid UTF-8 in hexadecimal."""
    return F.expr("coalesce(try_validate_utf8(cast(key as string)), hex(key))")


def add_fields(records: DataFrame, fields: Column, *problems: tuple[Column, str]) -> DataFrame:
    """Adds the decoded struct `fields` and the first of the problems that applies. A record without
    a value always has a problem."""
    places = [
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        key_text().alias("_key"),
    ]
    frame = records.select(*places, "key", "value", fields.alias(FIELDS))
    problem = F.when(F.col("value").isNull(), "the record has no value")
    for condition, description in problems:
        problem = problem.when(condition, description)
    return frame.withColumn(_PROBLEM, problem)


def fields_of(frame: DataFrame, schema: StructType, *, reserved: tuple[str, ...] = ()) -> DataFrame:
    """Returns the decoded records: the columns of PLACE and the fields. A field whose name is in
    PLACE or reserved gets a `_` appended."""
    valid = frame.filter(F.col(_PROBLEM).isNull())
    own = {*PLACE, *reserved}
    fields = [
        F.col(FIELDS).getField(field.name).alias(field.name + "_" * (field.name.lower() in own))
        for field in schema.fields
    ]
    return valid.select(*PLACE, *fields)


def dead_letters(frame: DataFrame) -> DataFrame:
    """Returns the other records unchanged, with headers that give their origin and the problem."""

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
