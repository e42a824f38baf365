"""Formats the output of commands as tables, sentences and JSON."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from lograft.model.seams import Address
from lograft.model.uuids import uuid_to_text

NOTHING: Final = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns lines with aligned columns; the last column is not padded."""
    lines = [head, *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    ]


def show(lines: Iterable[str]) -> None:
    print("\n".join(lines))


def warn(text: str) -> None:
    print(f"lograft: {text}", file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    print(json.dumps(jsonable(value), indent=2))


def jsonable(value: Any) -> Any:
    """Converts a value to JSON types: objects to dicts of their fields, UUIDs to Kafka's text form,
    enums to their names in lower case, and keys to strings."""
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, UUID):
        return uuid_to_text(value)
    if isinstance(value, Address | Exception):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: jsonable(item) for name, item in _fields(value).items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: jsonable(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    return [jsonable(item) for item in value]


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def number(value: int | None) -> str:
    """Formats a number; `-` if it is None or negative, which means unknown."""
    return NOTHING if value is None or value < 0 else str(value)


def numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values)) or "none"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
