"""Between a program's values and the bytes of a record.

A serializer is any function `(topic, value) -> bytes | None`, a deserializer any function
`(topic, data) -> value`; None stays None. Without one, producers take bytes and text (as UTF-8) and
consumers give bytes.

    Producer(..., value_serializer=json_serializer)
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from lograft.client.errors import SerializationFailed

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
Deserializer: TypeAlias = Callable[[str, bytes], Any]


def plain_serializer(topic: str, value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationFailed(
        f"topic {topic!r}: {type(value).__name__} is neither bytes nor text: give a serializer,"
        " such as value_serializer=json_serializer"
    )


def json_serializer(topic: str, value: Any) -> bytes | None:
    """Values that JSON can hold, as UTF-8.

    Producer(bootstrap_servers="localhost:9092", value_serializer=json_serializer)
    """
    return None if value is None else json.dumps(value, separators=(",", ":")).encode()


def json_deserializer(topic: str, data: bytes) -> Any:
    """What JSON holds.

    Consumer(bootstrap_servers="localhost:9092", value_deserializer=json_deserializer)
    """
    return json.loads(data)


def text_deserializer(topic: str, data: bytes) -> str:
    """UTF-8 as text.

    Consumer(bootstrap_servers="localhost:9092", value_deserializer=text_deserializer)
    """
    return data.decode()


def serialized(serializer: Serializer, topic: str, value: Any, what: str) -> bytes | None:
    """Raises SerializationFailed with the serializer's error as its cause."""
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
        f"the {what} for topic {topic!r} cannot be sent: its serializer gave"
        f" {type(data).__name__}, not bytes"
    )
