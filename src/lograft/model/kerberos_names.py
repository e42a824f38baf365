"""Names of Kerberos principals, and the rules that shorten them to the names of users.

A rule is DEFAULT, which drops the default realm, or

    RULE:[n:format](match)s/pattern/replacement/gL

It applies to names with n components (`kafka/host@REALM` has two). $0 in the format is the realm,
$1 and $2 are the components. If the formatted name matches, the substitution (g: every
occurrence; L or U: then in lower or upper case) gives the short name. The first rule that applies
decides; a name that no rule shortens is rejected.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lograft.model.errors import InvalidConfig

DEFAULT: Final = "DEFAULT"
SETTING: Final = "sasl.kerberos.principal.to.local.rules"
_NAME: Final = re.compile(r"(?P<service>[^/@]*)(?:/(?P<host>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE: Final = re.compile(
    r"""(?:(?P<default>DEFAULT)
      |RULE:\[(?P<components>\d+):(?P<format>[^\]]*)\]
       (?:\((?P<match>[^)]*)\))?
       (?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?
       /?(?P<case>[LU])?)""",
    re.VERBOSE,
)
_PARAMETER: Final = re.compile(r"\$(\d*)")
#: Java's group references in a replacement, and its escapes.
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)|\\|\$")
_SEPARATOR: Final = re.compile("[/@]")


class NameRejected(Exception):
    """No rule shortens the name of a principal, or a rule does not shorten it enough."""


class KerberosName(NamedTuple):
    service: str
    host: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> "KerberosName":
        match = _NAME.fullmatch(text)
        if match is not None:
            return cls(match["service"], match["host"], match["realm"])
        if "@" in text:
            raise NameRejected(f"malformed Kerberos name {text}")
        return cls(text, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule; without `format` it is DEFAULT."""

    text: str
    components: int = 0
    format: str | None = None
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    replaces_all: bool = False
    case: str | None = None

    def apply(self, name: KerberosName, default_realm: str) -> str | None:
        """Returns the short name; None if the rule does not apply."""
        short = self._shorten(name, default_realm)
        if short is None:
            return None
        if _SEPARATOR.search(short):
            raise NameRejected(f"rule {self.text} does not shorten the name: {short}")
        if self.case == "L":
            return short.lower()
        return short.upper() if self.case == "U" else short

    def _shorten(self, name: KerberosName, default_realm: str) -> str | None:
        if self.format is None:
            return name.service if name.realm == default_realm else None
        parts = [name.realm or "", name.service]
        if name.host is not None:
            parts.append(name.host)
        if len(parts) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda match: parts[int(match[1])], self.format)
        if self.match is not None and not self.match.fullmatch(base):
            return None
        if self.pattern is None:
            return base
        return self.pattern.sub(self._replace, base, count=0 if self.replaces_all else 1)

    def _replace(self, found: re.Match[str]) -> str:
        return _REFERENCE.sub(
            lambda match: (found[int(match[2])] or "") if match[2] else match[1] or "",
            self.replacement,
        )


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Raises InvalidConfig."""
    return tuple(_parse_rule(text) for text in texts)


def shorten(name: str, rules: Sequence[Rule], default_realm: str) -> str:
    """Returns the name of the user. Raises NameRejected."""
    parsed = KerberosName.parse(name)
    if parsed.host is None and parsed.realm is None:
        return parsed.service
    for rule in rules:
        short = rule.apply(parsed, default_realm)
        if short is not None:
            return short
    raise NameRejected(f"no rule of {SETTING} applies to {name}")


def _parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise _invalid(
            text, "it is neither DEFAULT nor RULE:[n:format](match)s/pattern/replacement/"
        )
    if match["default"]:
        return Rule(text=text)
    components = int(match["components"])
    for number in _PARAMETER.findall(match["format"]):
        if not number or int(number) > components:
            raise _invalid(text, f"${number} is not one of the {components} components")
    try:
        found = None if match["match"] is None else re.compile(match["match"])
        pattern = None if match["pattern"] is None else re.compile(match["pattern"])
    except re.error as error:
        raise _invalid(text, f"invalid regular expression: {error}") from None
    replacement = match["replacement"] or ""
    groups = pattern.groups if pattern is not None else 0
    for reference in _REFERENCE.finditer(replacement):
        if reference[0] in ("\\", "$") or (reference[2] and int(reference[2]) > groups):
            raise _invalid(text, f"the pattern does not have the group of {reference[0]}")
    return Rule(
        text=text,
        components=components,
        format=match["format"],
        match=found,
        pattern=pattern,
        replacement=replacement,
        replaces_all=match["all"] is not None,
        case=match["case"],
    )


def _invalid(text: str, problem: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {text} for configuration {SETTING}: {problem}")
