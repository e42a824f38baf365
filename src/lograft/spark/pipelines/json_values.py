"""Records whose values are JSON: which columns they have, and the values as these columns."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.json_schemas import inferred
from lograft.spark.pipelines.record_frames import FIELDS, decoded

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
    """As in `record_frames`."""
    asked = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return decoded(
        records,
        F.from_json(text, asked, options),
        (F.json_object_keys(text).isNull(), "the value is not a JSON object"),
        (F.col(FIELDS).getField(_CORRUPT).isNotNull(), "the value is not what the schema says"),
    )
