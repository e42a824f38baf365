"""Serializers and deserializers: convert values of the application to the bytes of records and
back.

A serializer is any function `(topic, value) -> bytes | None`, a deserializer any function
`(topic, data) -> value`; None stays None. Without serializers, producers accept bytes and str (as
UTF-8); without deserializers, consumers return bytes.

    Producer(..., value_serializer=json_serializer)
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from lograft.client.errors import SerializationFailed

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
Deserializer: TypeAlias = Callable[[str, bytes], Any]


def plain_serializer(topic: str, value: Any) -> bytes | None:
    """Returns bytes unchanged, and str as UTF-8."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationFailed(
        f"topic {topic!r}: a value of type {type(value).__name__} is neither bytes nor str: set a"
        " serializer, such as value_serializer=json_serializer"
    )


def json_serializer(topic: str, value: Any) -> bytes | None:
    """Serializes a value as JSON in UTF-8.

    Producer(bootstrap_servers="localhost:9092", value_serializer=json_serializer)
    """
    return None if value is None else json.dumps(value, separators=(",", ":")).encode()


def json_deserializer(topic: str, data: bytes) -> Any:
    """Parses JSON.

    Consumer(bootstrap_servers="localhost:9092", value_deserializer=json_deserializer)
    """
    return json.loads(data)


def text_deserializer(topic: str, data: bytes) -> str:
    """Decodes UTF-8.

    Consumer(bootstrap_servers="localhost:9092", value_deserializer=text_deserializer)
    """
    return data.decode()


def serialize(serializer: Serializer, topic: str, value: Any, what: str) -> bytes | None:
    """Returns the serialized value. Raises SerializationFailed with the exception of the serializer
    as its cause."""
    try:
        data: Any = serializer(topic, value)
    except SerializationFailed:
        raise
    except Exception as error:
        raise SerializationFailed(
            f"the {what} for topic {topic!r} cannot be serialized: {error}"
        ) from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationFailed(
        f"the {what} for topic {topic!r} cannot be sent: its serializer returned"
        f" {type(data).__name__}, not bytes"
    )
