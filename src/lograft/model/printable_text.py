"""Escapes text from outside for use in a single log line."""

from typing import Final

_CHARACTERS_MAX: Final = 200


def printable(text: str, *, characters_max: int = _CHARACTERS_MAX) -> str:
    """Escapes line breaks, control and other unprintable characters, and limits the length: a
    client id or topic name must not be able to forge a log line or fill a disk."""
    cut = text[:characters_max]
    shown = cut if cut.isprintable() else "".join(map(_escape, cut))
    return shown if len(text) <= characters_max else shown + "…"


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
