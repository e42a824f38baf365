"""Records whose values are JSON, as columns: those that fit the schema, and those that do not."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.json_schemas import inferred

#: Where a record is from, beside its fields.
PLACE: Final = ("_topic", "_partition", "_offset", "_timestamp", "_key")
_CORRUPT: Final = "_corrupt_record"
#: So many records say what fields there are.
SAMPLE: Final = 2_000


def declared(text: str) -> StructType:
    """Of a setting: `id BIGINT, name STRING`."""
    schema = StructType.fromDDL(text)
    if not isinstance(schema, StructType):
        raise InvalidConfig(f"schema is {text!r}, but must be columns: id BIGINT, name STRING")
    return schema


def schema_of(records: DataFrame) -> StructType:
    """Inferred from the first records."""
    rows = records.select(F.col("value").cast("string")).limit(SAMPLE).collect()
    return inferred(row[0] for row in rows if row[0] is not None)


def unknown_fields(records: DataFrame, schema: StructType) -> list[str]:
    """Names on the first level that the schema does not have."""
    keys = F.explode(F.json_object_keys(F.col("value").cast("string")))
    known = [one.name.lower() for one in schema.fields]
    return [
        row[0] for row in records.select(keys).distinct().collect() if row[0].lower() not in known
    ]


def with_unknown_fields(records: DataFrame, names: list[str]) -> DataFrame:
    keys = F.json_object_keys(F.col("value").cast("string"))
    return records.filter(F.arrays_overlap(keys, F.array(*map(F.lit, names))))


def parsed(records: DataFrame, schema: StructType) -> DataFrame:
    """The columns of PLACE, the struct `_json` (null where it does not fit), and `_problem`."""
    asked = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    places: list[Column] = [
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("key").cast("string").alias("_key"),
    ]
    frame = records.select(
        *places, "key", "value", F.from_json(text, asked, options).alias("_json")
    )
    problem = (
        F.when(F.col("value").isNull(), "the record has no value")
        .when(F.json_object_keys(text).isNull(), "the value is not a JSON object")
        .when(F.col(f"_json.{_CORRUPT}").isNotNull(), "the value is not what the schema says")
    )
    return frame.withColumn("_problem", problem)


def fields_of(frame: DataFrame, schema: StructType) -> DataFrame:
    """The records without a problem: where they are from, and their fields."""
    good = frame.filter(F.col("_problem").isNull())
    fields = [F.col("_json").getField(one.name).alias(one.name) for one in schema.fields]
    return good.select(*PLACE, *fields)


def dead_letters(frame: DataFrame) -> DataFrame:
    """The others as records for a topic: as they came, with headers that say from where and why."""

    def header(name: str, value: Column) -> Column:
        return F.struct(
            F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value")
        )

    return frame.filter(F.col("_problem").isNotNull()).select(
        "key",
        "value",
        F.array(
            header("dead-letter.topic", F.col("_topic")),
            header("dead-letter.partition", F.col("_partition")),
            header("dead-letter.offset", F.col("_offset")),
            header("dead-letter.reason", F.col("_problem")),
        ).alias("headers"),
    )
