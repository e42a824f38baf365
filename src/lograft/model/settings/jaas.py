"""Parses sasl.jaas.config, in the syntax of Java's JAAS files: a login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Nothing is loaded or executed: the class name only identifies one of Kafka's login modules. All
options are secrets, and no error message contains the value of one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from lograft.model.errors import InvalidConfig
from lograft.model.settings.keys import Secret

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
#: The login module of each mechanism.
MODULES: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTHBEARER_MODULE,
    "GSSAPI": KERBEROS_MODULE,
}
CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
#: PlainLoginModule: user_alice="secret" is the password of alice.
USER_OPTION: Final = "user_"

_TOKEN: Final = re.compile(
    r"""(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*
    (?:(?P<word>(?:[A-Za-z0-9_$.\-]|[^\x00-\x7f\s])+)
      |(?P<quoted>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
      |(?P<sign>[=;])
      |(?P<end>\Z)
      |(?P<other>.))""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasEntry(NamedTuple):
    """A login module with its options."""

    module: str
    options: Mapping[str, Secret]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, [hidden])"

    def option(self, name: str) -> str | None:
        secret = self.options.get(name)
        return None if secret is None else secret.value

    @property
    def users(self) -> dict[str, Secret]:
        """The passwords of PlainLoginModule's users."""
        return {
            name.removeprefix(USER_OPTION): secret
            for name, secret in self.options.items()
            if name.startswith(USER_OPTION)
        }


def parse_jaas(text: str, *, setting: str) -> JaasEntry:
    """Raises InvalidConfig unless the text is one entry for one of Kafka's login modules."""
    tokens = _tokens(text, setting)
    kind, module = next(tokens)
    if kind != "text":
        raise _invalid(setting, "it does not start with the class name of a login module")
    if module not in MODULES.values():
        # A value of another form may be a password.
        shown = module if re.fullmatch(r"[\w.$]{1,200}LoginModule", module) else "[hidden]"
        raise _invalid(
            setting,
            f"login module {shown} is not supported; use one of {', '.join(_known_modules())}",
        )
    kind, flag = next(tokens)
    if kind != "text" or flag.lower() not in CONTROL_FLAGS:
        raise _invalid(setting, f"the login module is not followed by {CONTROL_FLAGS[0]}")
    options: dict[str, Secret] = {}
    while (token := next(tokens)) != ("sign", ";"):
        kind, name = token
        if kind == "end":
            raise _invalid(setting, "the entry does not end with a semicolon")
        if kind != "text" or next(tokens) != ("sign", "="):
            raise _invalid(setting, 'an option is not written as name="value"')
        kind, value = next(tokens)
        if kind != "text":
            raise _invalid(setting, 'the value of an option is not written as name="value"')
        options[name] = Secret(value)
    if next(tokens) != ("end", ""):
        raise _invalid(setting, "it has more than one login module")
    return JaasEntry(module, options)


def _known_modules() -> list[str]:
    return list(dict.fromkeys(MODULES.values()))


def _tokens(text: str, setting: str) -> Iterator[tuple[str, str]]:
    """Yields the words and quoted texts as "text", = and ; as "sign", and then "end" forever."""
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        assert match is not None, "the last alternatives match everything"
        position = match.end()
        if match["word"] is not None:
            yield "text", match["word"]
        elif match["quoted"] is not None:
            yield "text", _ESCAPE.sub(_unescape, match["quoted"][1:-1])
        elif match["sign"] is not None:
            yield "sign", match["sign"]
        elif match["end"] is not None:
            yield "end", ""
        else:
            raise _invalid(
                setting,
                f"character {position} is neither part of a word nor of a quoted text: write"
                ' names and values with other characters in double quotes ("…")',
            )


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _CONTROL.get(escaped, escaped)


def _invalid(setting: str, problem: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value [hidden] for configuration {setting}: {problem}")
