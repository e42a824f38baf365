"""Which columns JSON values have: inferred once, and grown when new fields come. Pure.

A column keeps its type for good, as files that were written have it; a record that does not fit is
a dead letter. What is not the same everywhere in the sample becomes text, which holds anything.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
#: What is nested deeper is text.
_DEPTH_MAX: Final = 50


def inferred(values: Iterable[str]) -> StructType:
    """Of JSON objects; others among them are passed over."""
    merged: DataType = StructType([])
    for value in values:
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            merged = _merged(merged, _type_of(parsed))
    settled = _settled(merged)
    assert isinstance(settled, StructType)
    return settled


def grown(known: StructType, seen: StructType) -> StructType:
    """`known` with the fields of `seen` that it does not have; what it has stays as it is."""
    names = {one.name.lower(): one for one in seen.fields}
    fields = [_grown_field(one, names.get(one.name.lower())) for one in known.fields]
    old = {one.name.lower() for one in known.fields}
    return StructType(fields + [one for one in seen.fields if one.name.lower() not in old])


def changed(known: StructType, seen: StructType, where: str = "") -> list[str]:
    """Fields that both have with types that do not go together."""
    names = {one.name.lower(): one.dataType for one in seen.fields}
    found = []
    for one in known.fields:
        kind, other = one.dataType, names.get(one.name.lower())
        if isinstance(kind, StructType) and isinstance(other, StructType):
            found += changed(kind, other, f"{where}{one.name}.")
        elif other is not None and kind.simpleString() != other.simpleString():
            found.append(f"{where}{one.name}")
    return found


def _grown_field(known: StructField, seen: StructField | None) -> StructField:
    if seen is None:
        return known
    if isinstance(known.dataType, StructType) and isinstance(seen.dataType, StructType):
        return StructField(known.name, grown(known.dataType, seen.dataType))
    return known


def _type_of(value: Any, depth: int = 0) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int():
            # A number that a double would round is kept as it is written.
            return LongType() if _LONG_MIN <= value <= _LONG_MAX else StringType()
        case float():
            return DoubleType()
        case dict() | list() if depth > _DEPTH_MAX:
            return StringType()
        case dict():
            return StructType(
                [StructField(name, _type_of(one, depth + 1)) for name, one in value.items()]
            )
        case list():
            element: DataType = NullType()
            for one in value:
                element = _merged(element, _type_of(one, depth + 1))
            return ArrayType(element)
        case _:
            return StringType()


def _merged(one: DataType, other: DataType) -> DataType:
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, StructType) and isinstance(other, StructType):
        others = {field.name: field.dataType for field in other.fields}
        fields = [
            StructField(field.name, _merged(field.dataType, others.pop(field.name, NullType())))
            for field in one.fields
        ]
        return StructType(fields + [StructField(name, kind) for name, kind in others.items()])
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType))
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    return StringType()


def _settled(kind: DataType) -> DataType:
    """What was null everywhere is text. Of fields that differ only in case, the first is a column:
    tables do not tell them apart."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, StructType):
        columns: dict[str, StructField] = {}
        for one in kind.fields:
            columns.setdefault(one.name.lower(), StructField(one.name, _settled(one.dataType)))
        return StructType(list(columns.values()))
    if isinstance(kind, ArrayType):
        return ArrayType(_settled(kind.elementType))
    return kind
