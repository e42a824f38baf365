"""Converts the rows of a query to records: checks the columns and groups the rows by topic."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from lograft.model.errors import InvalidConfig, LograftError

_TEXT: Final = (StringType, BinaryType)
_KINDS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
}
#: Columns that become part of a record.
_RECORD_COLUMNS: Final = ("key", "value", "headers", "partition")


class TopicUnknown(LograftError):
    """A row has no topic."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises InvalidConfig if the columns cannot be converted to records. Columns with other names
    are ignored, as by Spark's Kafka sink."""
    fields = {field.name: field for field in schema.fields}
    if "value" not in fields:
        raise InvalidConfig(
            f"the query has no column value; its columns are {', '.join(fields) or '(none)'}"
        )
    if topic is None and "topic" not in fields:
        raise InvalidConfig("no topic: set the option topic, or add a column topic")
    for name, kinds in _KINDS.items():
        if name in fields and not isinstance(fields[name].dataType, kinds):
            allowed = " or ".join(kind.typeName() for kind in kinds)
            found = fields[name].dataType.simpleString()
            raise InvalidConfig(f"column {name} is {found}, but must be {allowed}")
    if "headers" in fields and not _are_headers(fields["headers"]):
        raise InvalidConfig(
            f"column headers is {fields['headers'].dataType.simpleString()}, but must be"
            " array<struct<key:string,value:binary>>"
        )


def _are_headers(field: StructField) -> bool:
    kind = field.dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(part.name, type(part.dataType)) for part in kind.elementType.fields]
    return parts == [("key", StringType), ("value", BinaryType)]


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of each topic, with the columns of records. The option takes precedence over
    the column."""
    import pyarrow.compute as pc  # slow to import, and not needed in the driver's processes

    records = batch.select([name for name in _RECORD_COLUMNS if name in batch.schema.names])
    if topic is not None:
        yield topic, records
        return
    topics = batch.column("topic").dictionary_encode()
    if topics.null_count:
        raise TopicUnknown(
            "a row has null as its topic: fill the column topic, or set the option topic"
        )
    names = topics.dictionary.to_pylist()
    for number, name in enumerate(names):
        if len(names) == 1:
            yield name, records
        else:
            yield name, records.filter(pc.equal(topics.indices, number))
