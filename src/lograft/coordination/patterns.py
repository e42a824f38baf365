"""Patterns that clients send: RE2's, as in Kafka, so that matching takes linear time whatever they
send."""

from collections.abc import Callable
from typing import Any, Final

PATTERN_LENGTH_MAX: Final = 10_000
#: What a pattern may be compiled to: enough for ten thousand characters of names. Without a limit
#: "(\pL?){300}q" takes seconds to compile and to match, and nobody else is served meanwhile.
PROGRAM_BYTES_MAX: Final = 1 << 17


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
    memory = options.max_mem
    try:
        options.max_mem = PROGRAM_BYTES_MAX
        re2.compile(pattern, options)
        # It is small. Now with more room for what is remembered from one text to the next.
        options.max_mem = memory
        matches: Callable[[str], Any] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        reason = error.args[0]
        raise NoPattern(reason.decode() if isinstance(reason, bytes) else reason) from None
    return matches
