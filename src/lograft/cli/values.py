"""Formats keys and values as JSON, text, hex or base64, and encodes input in these formats."""

import base64
import binascii
import json
from io import TextIOWrapper
from typing import Any, Final, TextIO

from lograft.model.errors import InvalidInput

FORMATS: Final = ("auto", "json", "text", "hex", "base64")


def format_bytes(data: bytes | None, form: str = "auto") -> str:
    """Formats a key or value in one of `FORMATS`; None is `null`."""
    if data is None:
        return "null"
    if form == "hex":
        return data.hex()
    if form == "base64":
        return base64.b64encode(data).decode("ascii")
    text = text_of(data)
    if form == "json" and text is not None:
        try:
            return _dump_json(_parse_exact_json(text))
        except (ValueError, RecursionError):
            return text
    if text is None:
        return f"0x{data.hex()}"
    return text


def text_of(data: bytes) -> str | None:
    """Decodes UTF-8 text; None if the bytes are not printable text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\t\n\r" for char in text) else None


def to_json(data: bytes | None) -> Any:
    """Returns the bytes as a JSON value: parsed if they are JSON, otherwise as a string. Binary
    data, and text that starts with 0x, becomes a string of hex digits after 0x.

    JSON that `produce --format record` would not turn into the same bytes stays a string: null,
    which would become a tombstone; strings, which would lose their quotes; and values that other
    JSON parsers reject or change.
    """
    if data is None:
        return None
    text = text_of(data)
    if text is None or text.startswith("0x"):
        return f"0x{data.hex()}"
    try:
        value = _parse_exact_json(text)
    except (ValueError, RecursionError):
        return text
    return text if value is None or isinstance(value, str) else value


def parse_json(data: bytes | None) -> Any:
    """Parses JSON as leniently as Python does; returns None if the bytes are not JSON."""
    try:
        return json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None


def _parse_exact_json(text: str) -> Any:
    """Parses JSON. Raises ValueError or RecursionError for invalid JSON, and for JSON that would
    not be dumped as the same value: NaN, numbers outside the range of floats, duplicate names,
    unpaired surrogates."""
    value = json.loads(text, object_pairs_hook=_reject_duplicates)
    dumped = _dump_json(value)
    dumped.encode("utf-8")
    if isinstance(value, float) and dumped != text:
        raise ValueError(text)
    return value


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("duplicate name")
    return fields


def encode_text(text: str, form: str = "text") -> bytes:
    """Returns the bytes of a key or value that the user entered in this format."""
    try:
        if form == "hex":
            return bytes.fromhex(text.removeprefix("0x"))
        if form == "base64":
            return base64.b64decode(text, validate=True)
        if form == "json":
            json.loads(text)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"{text[:40]!r} is not valid {form}: {error}") from None
    return raw_bytes(text)


def preserve_raw_bytes(stream: TextIO) -> None:
    """Makes a stream read UTF-8 in any locale, and preserve other bytes for `raw_bytes`."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def raw_bytes(text: str) -> bytes:
    """Returns the original bytes of a text from stdin or the command line, UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")
