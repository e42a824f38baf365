"""Messages and records as JSON, in the format of Kafka's tools.

Names are camelCase, UUIDs and bytes base64; a field that the version does not have is left out,
and so is a tagged field with its default.
"""

import base64
import json
from typing import Any
from uuid import UUID

from lograft.model.uuids import uuid_to_text
from lograft.wire.message import Message


def camel_case(name: str) -> str:
    first, *rest = name.rstrip("_").split("_")
    joined = first + "".join(part[:1].upper() + part[1:] for part in rest)
    return joined.replace("kraft", "kRaft")


def json_form(message: Message, version: int) -> dict[str, Any]:
    result = {}
    for field in message.FIELDS:
        if not field.is_in(version):
            continue
        value = getattr(message, field.name)
        # In Kafka the default of a nullable struct is not null, so a null is printed.
        is_null_struct = field.kind == "struct" and value is None and field.is_nullable_in(version)
        if field.is_tagged and value == field.new_default() and not is_null_struct:
            continue
        result[camel_case(field.name)] = json_value(value, version)
    return result


def json_value(value: Any, version: int) -> Any:
    match value:
        case Message():
            return json_form(value, version)
        case UUID():
            return uuid_to_text(value)
        case list() | tuple():
            return [json_value(element, version) for element in value]
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case _:
            return value


def json_line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
