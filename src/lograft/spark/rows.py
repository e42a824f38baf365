"""Rows of a query as records: which columns are taken, and which topic each row goes to."""

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
#: What becomes part of a record; the topic says where it goes.
_SENT: Final = ("key", "value", "headers", "partition")


class TopicUnknown(LograftError):
    """A row does not say where it is to go."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises InvalidConfig for a query that is not made of records. Columns with other names are
    passed over, as Spark's Kafka sink does."""
    fields = {field.name: field for field in schema.fields}
    if "value" not in fields:
        raise InvalidConfig(f"there is no column value among {', '.join(fields) or 'no columns'}")
    if topic is None and "topic" not in fields:
        raise InvalidConfig("no topic: set the option topic, or give a column topic")
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
    parts = [(one.name, type(one.dataType)) for one in kind.elementType.fields]
    return parts == [("key", StringType), ("value", BinaryType)]


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, with the columns that records have. The option wins over the
    column."""
    import pyarrow.compute as pc  # slow to import: a driver's processes do without

    sent = batch.select([name for name in _SENT if name in batch.schema.names])
    if topic is not None:
        yield topic, sent
        return
    topics = batch.column("topic").dictionary_encode()
    if topics.null_count:
        raise TopicUnknown(
            "a row has null as its topic: fill the column topic, or set the option topic"
        )
    names = topics.dictionary.to_pylist()
    for number, name in enumerate(names):
        if len(names) == 1:
            yield name, sent
        else:
            yield name, sent.filter(pc.equal(topics.indices, number))
