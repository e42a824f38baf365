"""Regular expressions of clients: RE2's, as in Kafka, so that matching always takes linear time.
That can still be long: a small pattern can take 2 ms for the longest topic name."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

PATTERN_LENGTH_MAX: Final = 10_000
#: Maximum size of a compiled pattern: enough for ten thousand characters of names. Without a limit
#: "(\pL?){300}q" takes seconds to compile and to match, and blocks all other clients.
PROGRAM_BYTES_MAX: Final = 1 << 17


class InvalidPattern(ValueError):
    """The text is not a regular expression; the message has the reason."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(reason)
        self.pattern = pattern


class Pattern(NamedTuple):
    #: Returns whether a whole text matches.
    matches: Callable[[str], Any]
    #: Worst case for each character of a text: steps of a few nanoseconds.
    steps: int


def compile_pattern(pattern: str) -> Pattern:
    # Imported here: most nodes never use a pattern.
    import re2

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(pattern, f"longer than {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    memory = options.max_mem
    try:
        options.max_mem = PROGRAM_BYTES_MAX
        re2.compile(pattern, options)
        # The pattern is small. Compile it again with more memory for its cache.
        options.max_mem = memory
        program = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        message = reason.decode() if isinstance(reason, bytes) else reason
        raise InvalidPattern(pattern, message) from None
    return Pattern(program.fullmatch, program.programsize)
