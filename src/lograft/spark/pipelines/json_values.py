"""Parses JSON values to columns, and infers the columns."""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.json_schemas import infer_schema
from lograft.spark.pipelines.record_frames import FIELDS, add_fields

#: Number of records from which a schema is inferred.
SAMPLE: Final = 2_000


def parse_schema(text: str) -> StructType:
    """Parses a declared schema: `id BIGINT, name STRING`."""
    schema = StructType.fromDDL(text)
    if not isinstance(schema, StructType):
        raise InvalidConfig(
            f"schema is {text!r}, but must be a list of columns: id BIGINT, name STRING"
        )
    return schema


def schema_of(records: DataFrame) -> StructType:
    """Infers the schema of the first records."""
    rows = records.select(F.col("value").cast("string")).limit(SAMPLE).collect()
    return infer_schema(row[0] for row in rows if row[0] is not None)


def find_unknown_fields(records: DataFrame, schema: StructType) -> list[tuple[str, ...]]:
    """Returns the paths of fields that are not in the schema, including those of nested objects,
    but not of objects in arrays."""
    objects = list(_objects(schema))
    # A single pass over the records, regardless of the number of objects.
    keys = F.flatten(
        F.array(*(_add_object_number(_keys_at(path), at) for at, (path, _) in enumerate(objects)))
    )
    rows = records.select(F.explode(keys).alias("found")).select("found.*").distinct().collect()
    known = [{field.name.lower() for field in fields} for _, fields in objects]
    return sorted(
        (*objects[row["object"]][0], row["name"])
        for row in rows
        if row["name"].lower() not in known[row["object"]]
    )


def _add_object_number(keys: Column, number: int) -> Column:
    pairs = F.transform(
        keys, lambda key: F.struct(F.lit(number).alias("object"), key.alias("name"))
    )
    return F.coalesce(pairs, F.array().cast("array<struct<object:int,name:string>>"))


def filter_with_fields(records: DataFrame, paths: list[tuple[str, ...]]) -> DataFrame:
    has_field = [F.array_contains(_keys_at(path[:-1]), path[-1]) for path in paths]
    return records.filter(F.coalesce(F.greatest(*has_field, F.lit(False)), F.lit(False)))


def _objects(
    schema: StructType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[StructField]]]:
    yield path, schema.fields
    for field in schema.fields:
        # Spark's JSON paths cannot contain names with these characters.
        if isinstance(field.dataType, StructType) and not set("'?") & set(field.name):
            yield from _objects(field.dataType, (*path, field.name))


def _keys_at(path: tuple[str, ...]) -> Column:
    text = F.col("value").cast("string")
    if path:
        text = F.get_json_object(text, "$" + "".join(f"['{name}']" for name in path))
    return F.json_object_keys(text)


def parse_values(records: DataFrame, schema: StructType) -> DataFrame:
    """Returns a frame as described in `record_frames`."""
    names = [field.name for field in schema.fields]
    corrupt = "_corrupt_record"
    while corrupt in (name.lower() for name in names):
        corrupt += "_"
    read_schema = StructType([*schema.fields, StructField(corrupt, StringType())])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    return add_fields(
        records,
        F.from_json(text, read_schema, options),
        (F.json_object_keys(text).isNull(), "the value is not a JSON object"),
        (F.col(FIELDS).getField(corrupt).isNotNull(), "the value does not match the schema"),
        (
            _differs_in_case(F.json_object_keys(text), names),
            "a field name differs from its column in upper and lower case",
        ),
    )


def _differs_in_case(keys: Column, names: list[str]) -> Column:
    """Returns whether a field differs from a column in case only; Spark would read it as
    missing."""
    lowered = [name.lower() for name in names]
    return F.exists(keys, lambda key: F.lower(key).isin(lowered) & ~key.isin(names))
