"""Variables in a configuration file: `${provider:path:key}` and `${provider:key}`, as in Kafka.

`config.providers` lists the names of the providers, `config.providers.<name>.class` is the class of
each, and `config.providers.<name>.param.*` are its parameters. Lograft has the three providers of
Kafka under their Java class names. They work in the configuration file only.

This module finds the variables and replaces them; `cli/provider_sources.py` reads the values. A
variable of a provider that the file does not declare is plain text, as in Kafka. A variable that a
declared provider cannot resolve is an error: Kafka would use its text as the password or path.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from lograft.model.errors import InvalidConfig
from lograft.model.settings.keys import split_list

PROVIDERS: Final = "config.providers"
_JAVA_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*?)\}")


class ProviderKind(Enum):
    """The value is the name of the Java class in Kafka."""

    #: A key of a .properties file at the path.
    FILE = f"{_JAVA_PACKAGE}FileConfigProvider"
    #: The content of a file in the directory at the path; the key is the name of the file.
    DIRECTORY = f"{_JAVA_PACKAGE}DirectoryConfigProvider"
    #: An environment variable; there is no path.
    ENVIRONMENT = f"{_JAVA_PACKAGE}EnvVarConfigProvider"


class Provider(NamedTuple):
    name: str
    kind: ProviderKind
    #: Absolute paths below which files may be read; None: everywhere.
    allowed_paths: tuple[str, ...] | None = None
    #: Matches the whole names of the environment variables that may be read; None: all.
    allowlist: re.Pattern[str] | None = None


class Variable(NamedTuple):
    provider: str
    #: "" if the variable has none.
    path: str
    key: str

    def __str__(self) -> str:
        return "${" + ":".join(part for part in self if part) + "}"


#: The parameters that Kafka's providers have; they ignore others.
_PARAMETERS: Final = {
    ProviderKind.FILE: ("allowed.paths",),
    ProviderKind.DIRECTORY: ("allowed.paths",),
    ProviderKind.ENVIRONMENT: ("allowlist.pattern",),
}


def find_unused(properties: Mapping[str, str]) -> list[str]:
    """Returns settings of providers that the file does not declare, and parameters that their
    provider does not have: a misspelled allowed.paths would allow every path."""
    prefix = f"{PROVIDERS}."
    used = {f"{prefix}{name}.class" for name in split_list(properties.get(PROVIDERS, ""))}
    for provider in parse_providers(properties).values():
        names = _PARAMETERS[provider.kind]
        used.update(f"{prefix}{provider.name}.param.{name}" for name in names)
    return [name for name in properties if name.startswith(prefix) and name not in used]


def is_provider_setting(name: str) -> bool:
    """Returns whether the name configures a provider, as `config.providers.<name>.class` does."""
    return re.fullmatch(r"config\.providers\.[^.]+\.(class|param\..+)", name) is not None


def parse_providers(properties: Mapping[str, str]) -> dict[str, Provider]:
    """Returns the providers by name. Raises InvalidConfig."""
    names = split_list(properties.get(PROVIDERS, ""))
    return {name: _parse_provider(name, properties) for name in names}


def find_variables(
    properties: Mapping[str, str], providers: Mapping[str, Provider]
) -> dict[str, tuple[Variable, ...]]:
    """Returns the variables that a provider has to resolve, by setting."""
    if not providers:
        return {}
    by_setting = {
        name: tuple(
            variable
            for match in _VARIABLE.finditer(text)
            if (variable := _variable(match)).provider in providers
        )
        for name, text in properties.items()
        if not is_provider_setting(name)
    }
    return {name: variables for name, variables in by_setting.items() if variables}


def replace_variables(text: str, values: Mapping[Variable, str]) -> str:
    """Keeps variables without a value. Variables in replaced values are not replaced again."""
    return _VARIABLE.sub(lambda match: values.get(_variable(match), match[0]), text)


def _variable(match: re.Match[str]) -> Variable:
    return Variable(match[1], match[2] or "", match[3])


def _parse_provider(name: str, properties: Mapping[str, str]) -> Provider:
    setting = f"{PROVIDERS}.{name}.class"
    text = properties.get(setting, "").strip()
    if not text:
        raise InvalidConfig(
            f"{PROVIDERS} contains {name!r}: set {setting} to one of {_known_classes()}"
        )
    try:
        kind = ProviderKind(text)
    except ValueError:
        raise InvalidConfig(
            f"{setting} is {text}, but Lograft loads no Java classes: use one of {_known_classes()}"
        ) from None
    return Provider(
        name, kind, _parse_allowed_paths(name, properties), _parse_allowlist(name, properties)
    )


def _parse_allowed_paths(name: str, properties: Mapping[str, str]) -> tuple[str, ...] | None:
    setting = f"{PROVIDERS}.{name}.param.allowed.paths"
    paths = split_list(properties.get(setting, ""))
    for path in paths:
        if not path.startswith("/"):
            raise InvalidConfig(f"{setting} contains {path!r}: use absolute paths")
    return paths or None


def _parse_allowlist(name: str, properties: Mapping[str, str]) -> re.Pattern[str] | None:
    setting = f"{PROVIDERS}.{name}.param.allowlist.pattern"
    pattern = properties.get(setting)
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidConfig(f"{setting} is not a regular expression: {error}") from None


def _known_classes() -> str:
    return ", ".join(kind.value for kind in ProviderKind)
