"""Kafka's text form of a UUID: 22 characters of URL-safe base64 without padding."""

import base64
import binascii
from uuid import UUID

from lograft.model.errors import InvalidInput


def uuid_to_text(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16:
        raise InvalidInput(
            f"{text!r} is not a Kafka UUID: it needs 22 characters of URL-safe base64"
            " (generate one with 'lograft storage random-uuid')"
        )
    return UUID(bytes=raw)
