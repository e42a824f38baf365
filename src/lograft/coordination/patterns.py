"""Patterns that clients send: RE2's, as in Kafka, so that matching takes linear time whatever they
send."""

from collections.abc import Callable
from typing import Any, Final

PATTERN_LENGTH_MAX: Final = 10_000


class NoPattern(ValueError):
    """The text is not a regular expression; says why."""


def whole_match(pattern: str) -> Callable[[str], Any]:
    """A function that says whether a whole text matches."""
    # Imported here: most nodes never see a pattern.
    import re2

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise NoPattern(f"longer than {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        matches: Callable[[str], Any] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        reason = error.args[0]
        raise NoPattern(reason.decode() if isinstance(reason, bytes) else reason) from None
    return matches
