"""Records whose values are JSON: which columns they have, and the values as these columns."""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.json_schemas import inferred
from lograft.spark.pipelines.record_frames import FIELDS, decoded

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


def unknown_fields(records: DataFrame, schema: StructType) -> list[tuple[str, ...]]:
    """The paths of fields that the schema does not have, also in objects within objects (but not
    within arrays)."""
    objects = list(_objects(schema))
    # In one pass, however many objects there are.
    keys = F.flatten(
        F.array(*(_numbered(_keys_at(path), at) for at, (path, _) in enumerate(objects)))
    )
    rows = records.select(F.explode(keys).alias("found")).select("found.*").distinct().collect()
    known = [{one.name.lower() for one in fields} for _, fields in objects]
    return sorted(
        (*objects[row["object"]][0], row["name"])
        for row in rows
        if row["name"].lower() not in known[row["object"]]
    )


def _numbered(keys: Column, number: int) -> Column:
    pairs = F.transform(
        keys, lambda key: F.struct(F.lit(number).alias("object"), key.alias("name"))
    )
    return F.coalesce(pairs, F.array().cast("array<struct<object:int,name:string>>"))


def with_unknown_fields(records: DataFrame, paths: list[tuple[str, ...]]) -> DataFrame:
    has_one = [F.array_contains(_keys_at(path[:-1]), path[-1]) for path in paths]
    return records.filter(F.coalesce(F.greatest(*has_one, F.lit(False)), F.lit(False)))


def _objects(
    schema: StructType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[StructField]]]:
    yield path, schema.fields
    for one in schema.fields:
        # Names with these cannot be part of a path in Spark.
        if isinstance(one.dataType, StructType) and not set("'?") & set(one.name):
            yield from _objects(one.dataType, (*path, one.name))


def _keys_at(path: tuple[str, ...]) -> Column:
    text = F.col("value").cast("string")
    if path:
        text = F.get_json_object(text, "$" + "".join(f"['{name}']" for name in path))
    return F.json_object_keys(text)


def parsed(records: DataFrame, schema: StructType) -> DataFrame:
    """As in `record_frames`."""
    names = [one.name for one in schema.fields]
    corrupt = "_corrupt_record"
    while corrupt in (name.lower() for name in names):
        corrupt += "_"
    asked = StructType([*schema.fields, StructField(corrupt, StringType())])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    return decoded(
        records,
        F.from_json(text, asked, options),
        (F.json_object_keys(text).isNull(), "the value is not a JSON object"),
        (F.col(FIELDS).getField(corrupt).isNotNull(), "the value is not what the schema says"),
        (
            _is_spelt_differently(F.json_object_keys(text), names),
            "a field differs from its column in upper and lower case",
        ),
    )


def _is_spelt_differently(keys: Column, names: list[str]) -> Column:
    """Such a field would be read as missing."""
    lowered = [name.lower() for name in names]
    return F.exists(keys, lambda key: F.lower(key).isin(lowered) & ~key.isin(names))
