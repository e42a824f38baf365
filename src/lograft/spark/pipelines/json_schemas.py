"""Infers the columns of JSON values, and extends them with new fields. Pure.

A column never changes its type, because existing files have it; a record that does not match is a
dead letter. A field whose type varies within the sample becomes text."""

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
#: Values nested deeper become text.
_DEPTH_MAX: Final = 50


def infer_schema(values: Iterable[str]) -> StructType:
    """Infers the schema of JSON objects; other values are ignored."""
    merged: DataType = StructType([])
    for value in values:
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            merged = _merge(merged, _type_of(parsed))
    schema = _finalize(merged)
    assert isinstance(schema, StructType)
    return schema


def extend_schema(known: StructType, seen: StructType) -> StructType:
    """Returns `known` with the additional fields of `seen`; existing fields keep their types."""
    names = {field.name.lower(): field for field in seen.fields}
    fields = [_extend_field(field, names.get(field.name.lower())) for field in known.fields]
    old = {field.name.lower() for field in known.fields}
    return StructType(fields + [field for field in seen.fields if field.name.lower() not in old])


def find_changed_fields(known: StructType, seen: StructType, where: str = "") -> list[str]:
    """Returns the paths of fields whose type in `seen` differs from `known`."""
    names = {field.name.lower(): field.dataType for field in seen.fields}
    found = []
    for field in known.fields:
        kind, other = field.dataType, names.get(field.name.lower())
        if isinstance(kind, StructType) and isinstance(other, StructType):
            found += find_changed_fields(kind, other, f"{where}{field.name}.")
        elif other is not None and kind.simpleString() != other.simpleString():
            found.append(f"{where}{field.name}")
    return found


def _extend_field(known: StructField, seen: StructField | None) -> StructField:
    if seen is None:
        return known
    if isinstance(known.dataType, StructType) and isinstance(seen.dataType, StructType):
        return StructField(known.name, extend_schema(known.dataType, seen.dataType))
    return known


def _type_of(value: Any, depth: int = 0) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int():
            # A double would round a larger number, so it is kept as text.
            return LongType() if _LONG_MIN <= value <= _LONG_MAX else StringType()
        case float():
            return DoubleType()
        case dict() | list() if depth > _DEPTH_MAX:
            return StringType()
        case dict():
            return StructType(
                [StructField(name, _type_of(member, depth + 1)) for name, member in value.items()]
            )
        case list():
            element: DataType = NullType()
            for item in value:
                element = _merge(element, _type_of(item, depth + 1))
            return ArrayType(element)
        case _:
            return StringType()


def _merge(first: DataType, other: DataType) -> DataType:
    if first == other or isinstance(other, NullType):
        return first
    if isinstance(first, NullType):
        return other
    if isinstance(first, StructType) and isinstance(other, StructType):
        others = {field.name: field.dataType for field in other.fields}
        fields = [
            StructField(field.name, _merge(field.dataType, others.pop(field.name, NullType())))
            for field in first.fields
        ]
        return StructType(fields + [StructField(name, kind) for name, kind in others.items()])
    if isinstance(first, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merge(first.elementType, other.elementType))
    if {type(first), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    return StringType()


def _finalize(kind: DataType) -> DataType:
    """Turns null types into text, and drops fields that differ from an earlier field only in case:
    tables are not case-sensitive."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, StructType):
        columns: dict[str, StructField] = {}
        for field in kind.fields:
            columns.setdefault(
                field.name.lower(), StructField(field.name, _finalize(field.dataType))
            )
        return StructType(list(columns.values()))
    if isinstance(kind, ArrayType):
        return ArrayType(_finalize(kind.elementType))
    return kind
