"""Keys and values for eyes: JSON, text or hex, by what they are; and back from what was typed."""

import base64
import binascii
import json
from io import TextIOWrapper
from typing import Any, Final, TextIO

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
            return _dumped(_exactly(text))
        except (ValueError, RecursionError):
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
    """What the bytes are: a JSON value, a text, or hex after 0x (also a text that begins so).

    JSON that would not come back as the same value is a text: the word null, which is not the
    absence of a value; a quoted string, which is not what it quotes; and what is no JSON elsewhere.
    """
    if data is None:
        return None
    text = text_of(data)
    if text is None or text.startswith("0x"):
        return f"0x{data.hex()}"
    try:
        value = _exactly(text)
    except (ValueError, RecursionError):
        return text
    return text if value is None or isinstance(value, str) else value


def loose_json(data: bytes | None) -> Any:
    """The JSON value of the bytes as far as anybody can read it; None: it is none."""
    try:
        return json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None


def _exactly(text: str) -> Any:
    """Raises ValueError or RecursionError for what is no JSON, or would become another value:
    NaN, numbers beyond a float, names that come twice, halves of characters."""
    value = json.loads(text, object_pairs_hook=_without_repetition)
    dumped = _dumped(value)
    dumped.encode("utf-8")
    if isinstance(value, float) and dumped != text:
        raise ValueError(text)
    return value


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


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
    return raw_bytes(text)


def keep_raw(stream: TextIO) -> None:
    """What is no UTF-8 in a text that is read stays there for `raw_bytes`, whatever the locale
    says."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def raw_bytes(text: str) -> bytes:
    """Of a text from stdin or the command line: what is no UTF-8 there stays as it is."""
    return text.encode("utf-8", "surrogateescape")
