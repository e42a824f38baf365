"""Java's .properties text, as in Kafka's server.properties.

Comments begin with # or !, a key ends at the first unescaped =, : or blank, a backslash at the
end of a line continues it, \\uXXXX and \\n, \\t, \\r, \\f are escapes.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from lograft.model.errors import InvalidInput

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Returns the values by key. The last line with a key wins, as in Java."""
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end = _key_end(line)
        value_start = key_end
        while value_start < len(line) and line[value_start] in _BLANK:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
            while value_start < len(line) and line[value_start] in _BLANK:
                value_start += 1
        result[_unescape(line[:key_end], number)] = _unescape(line[value_start:], number)
    return result


def format_properties(values: Mapping[str, str], *, comments: tuple[str, ...] = ()) -> str:
    """Returns text that Java parses to the same values, one per line in the given order."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, ' ')}={_escape(value, '')}" for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number and content of each line, with continued lines joined, without comments and
    blank lines."""
    started = ""
    first = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_BLANK)
        if not started:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            # "\" alone still continues with the next line.
            started += line[:-1] or " "
            continue
        yield first, (started + line).lstrip(_BLANK)
        started = ""
    if started.strip(_BLANK):
        yield first, started.lstrip(_BLANK)


def _key_end(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
            continue
        if line[position] in "=:" or line[position] in _BLANK:
            return position
        position += 1
    return len(line)


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    result = []
    position = 0
    while position < len(text):
        if text[position] != "\\":
            result.append(text[position])
            position += 1
            continue
        escape = text[position + 1 : position + 2]
        if escape == "u":
            digits = text[position + 2 : position + 6]
            try:
                result.append(chr(int(digits, 16)) if len(digits) == 4 else _bad_escape())
            except ValueError:
                raise InvalidInput(
                    f"line {line_number}: \\u must be followed by four hexadecimal digits"
                ) from None
            position += 6
        else:
            result.append(_ESCAPES.get(escape, escape))
            position += 2
    joined = "".join(result)
    # Java writes characters above U+FFFF as two escapes.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bad_escape() -> str:
    raise ValueError


def _escape(text: str, always: str) -> str:
    result = []
    for position, char in enumerate(text):
        if char in "=:#!\\" or char in always or (char == " " and position == 0):
            result.append("\\" + char)
        elif char in "\n\t\r\f":
            result.append({"\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"}[char])
        elif not " " <= char <= "~":
            units = char.encode("utf-16-be")
            result += [f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2)]
        else:
            result.append(char)
    return "".join(result)
