"""The columns that Spark sees: those of its Kafka source, in their order, each of them nullable."""

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
#: The same in Arrow, exactly as Spark compares it.
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
    """The chosen columns of a decoded batch, whose types differ in nullability only: nothing is
    copied."""
    arrays = [
        batch.column(name) if name != HEADERS else _headers(batch.column(name)) for name in columns
    ]
    schema = pa.schema([(name, _ARROW_TYPES[name]) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(column: pa.ListArray) -> pa.ListArray:
    """A record without headers has null there, as in Spark's Kafka source."""
    import pyarrow.compute as pc  # slow to import: a driver's processes do without

    is_empty = pc.equal(column.value_lengths(), 0)
    items = column.values.cast(_ARROW_TYPES[HEADERS].value_type)
    return pa.ListArray.from_arrays(
        column.offsets, items, type=_ARROW_TYPES[HEADERS], mask=is_empty
    )
