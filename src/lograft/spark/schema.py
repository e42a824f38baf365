"""Columns of the source: those of Spark's Kafka source, in the same order, all nullable."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lograft.spark.options import HEADERS

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
#: The same types in Arrow, exactly as Spark expects them.
_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}


def spark_schema(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def to_spark(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Returns the selected columns of a decoded batch with Spark's types. The types differ in
    nullability only, so nothing is copied."""
    arrays = [
        batch.column(name) if name != HEADERS else _headers(batch.column(name)) for name in columns
    ]
    schema = pa.schema([(name, _ARROW_TYPES[name]) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(column: pa.ListArray) -> pa.ListArray:
    """Replaces empty headers by null, as Spark's Kafka source does."""
    import pyarrow.compute as pc  # slow to import, and not needed in the driver's processes

    is_empty = pc.equal(column.value_lengths(), 0)
    items = column.values.cast(_ARROW_TYPES[HEADERS].value_type)
    return pa.ListArray.from_arrays(
        column.offsets, items, type=_ARROW_TYPES[HEADERS], mask=is_empty
    )
