"""Patterns that clients send: RE2's, as in Kafka, so that matching takes linear time whatever they
send. Linear may still be long: a small pattern can take 2 ms for the longest name of a topic."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

PATTERN_LENGTH_MAX: Final = 10_000
#: What a pattern may be compiled to: enough for ten thousand characters of names. Without a limit
#: "(\pL?){300}q" takes seconds to compile and to match, and nobody else is served meanwhile.
PROGRAM_BYTES_MAX: Final = 1 << 17


class InvalidPattern(ValueError):
    """The text is not a regular expression; says why."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(reason)
        self.pattern = pattern


class Pattern(NamedTuple):
    #: Says whether a whole text matches.
    matches: Callable[[str], Any]
    #: For each letter of a text, at worst: steps of a few nanoseconds.
    steps: int


def compile_pattern(pattern: str) -> Pattern:
    # Imported here: most nodes never see a pattern.
    import re2

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(pattern, f"longer than {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    memory = options.max_mem
    try:
        options.max_mem = PROGRAM_BYTES_MAX
        re2.compile(pattern, options)
        # It is small. Now with more room for what is remembered from one text to the next.
        options.max_mem = memory
        program = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode() if isinstance(reason, bytes) else reason
        raise InvalidPattern(pattern, said) from None
    return Pattern(program.fullmatch, program.programsize)
