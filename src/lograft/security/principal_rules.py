"""ssl.principal.mapping.rules: maps distinguished names of certificates to names of principals.

The syntax is Kafka's: `DEFAULT`, or `RULE:pattern/replacement/` with L or U for lower or upper
case, separated by commas. The first rule whose pattern matches the whole name applies. Patterns are
Python regular expressions, which behave like Java's in all common cases. As in Kafka, text
between two rules that is not a rule is skipped.
"""

import re
from typing import Final, NamedTuple

from lograft.model.errors import InvalidConfig

SETTING: Final = "ssl.principal.mapping.rules"
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)\/((?:\\.|[^\\/])*)\/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
#: Java's spelling of a named group.
_NAMED_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


class PrincipalRule(NamedTuple):
    #: None: DEFAULT.
    pattern: re.Pattern[str] | None
    replacement: str
    #: "L", "U" or "".
    case: str

    def apply(self, name: str) -> str | None:
        pattern = self.pattern
        if pattern is None:
            return name
        if pattern.fullmatch(name) is None:
            return None
        result = pattern.sub(lambda match: _expand(self.replacement, match), name)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


class PrincipalRules:
    def __init__(self, text: str) -> None:
        """Raises InvalidConfig."""
        self._rules: list[PrincipalRule] = []
        for match in _SPLITTER.finditer(text.strip()):
            rule = _parse(match.group(1))
            if rule is not None:
                self._rules.append(rule)

    def name_of(self, distinguished_name: str) -> str | None:
        """Returns the name of the principal; None if no rule applies."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _parse(text: str) -> PrincipalRule | None:
    """Returns None for an empty rule."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        rest = text if match is None else text[match.end() :]
        raise InvalidConfig(f"{SETTING}: the rule {text!r} is invalid at {rest!r}")
    if match.group(1) is not None:
        return PrincipalRule(None, "", "")
    if match.group(2) is None:
        return None
    try:
        pattern = re.compile(_NAMED_GROUP.sub(r"(?P<\1>", match.group(2)), re.ASCII)
    except re.error as error:
        raise InvalidConfig(
            f"{SETTING}: the pattern {match.group(2)!r} is not a valid regular expression: {error}"
        ) from None
    rule = PrincipalRule(pattern, match.group(3), match.group(4))
    _check_replacement(rule.replacement, pattern)
    return rule


def _check_replacement(replacement: str, pattern: re.Pattern[str]) -> None:
    at = 0
    while at < len(replacement):
        character = replacement[at]
        if character == "\\":
            at += 1
        elif character == "$":
            rest = replacement[at + 1 :]
            number, _ = _group(rest, pattern.groups)
            if number is None and not (pattern.groups and rest[:1].isdigit()):
                raise InvalidConfig(
                    f"{SETTING}: the replacement {replacement!r} refers to a group that its"
                    r" pattern does not have; write \$ for a dollar sign"
                )
        at += 1


def _expand(replacement: str, match: re.Match[str]) -> str:
    """Returns the replacement with the groups of the match, as Java does."""
    parts = []
    at = 0
    while at < len(replacement):
        character = replacement[at]
        at += 1
        if character == "\\" and at < len(replacement):
            parts.append(replacement[at])
            at += 1
        elif character == "$":
            number, length = _group(replacement[at:], match.re.groups)
            if number is None:
                # Kafka keeps references to groups that do not exist.
                parts.append("$")
            else:
                parts.append(match.group(number) or "")
                at += length
        else:
            parts.append(character)
    return "".join(parts)


def _group(text: str, group_count: int) -> tuple[int | None, int]:
    """Returns the group to which the digits refer and how many of them belong to it, as many as
    there is a group for; None if there is no such group."""
    number = None
    length = 0
    for digit in text:
        if not ("0" <= digit <= "9"):
            break
        larger = (number or 0) * 10 + int(digit)
        if larger > group_count:
            break
        number, length = larger, length + 1
    return number, length
