"""Keys and values for eyes: JSON, text or hex, by what they are; and back from what was typed."""

import base64
import binascii
import json
from typing import Any, Final

from lograft.model.errors import InvalidInput

FORMATS: Final = ("auto", "json", "text", "hex", "base64")


def shown(data: bytes | None, form: str = "auto") -> str:
    """In one line; None is a tombstone, or no key."""
    if data is None:
        return "null"
    if form == "hex":
        return data.hex()
    if form == "base64":
        return base64.b64encode(data).decode("ascii")
    text = text_of(data)
    if form == "json" and text is not None:
        try:
            return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
        except ValueError:
            return text
    if text is None:
        return f"0x{data.hex()}"
    return text


def text_of(data: bytes) -> str | None:
    """None: it is no text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in "\t\n\r" for one in text) else None


def as_json(data: bytes | None) -> Any:
    """What the bytes are: a JSON value, a text, or hex after 0x (also a text that begins so)."""
    if data is None:
        return None
    text = text_of(data)
    if text is None or text.startswith("0x"):
        return f"0x{data.hex()}"
    try:
        return json.loads(text)
    except ValueError:
        return text


def typed(text: str, form: str = "text") -> bytes:
    """The bytes that somebody means who types this."""
    try:
        if form == "hex":
            return bytes.fromhex(text.removeprefix("0x"))
        if form == "base64":
            return base64.b64decode(text, validate=True)
        if form == "json":
            json.loads(text)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"{text[:40]!r} is no {form}: {error}") from None
    return text.encode("utf-8")
