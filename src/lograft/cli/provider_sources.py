"""Resolves variables in a configuration file from files, directories and the environment."""

import os
import os.path
from collections.abc import Mapping
from typing import assert_never

from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.properties import parse_properties
from lograft.model.settings.broker import keys_of
from lograft.model.settings.providers import (
    Provider,
    ProviderKind,
    Variable,
    find_variables,
    parse_providers,
    replace_variables,
)


def resolve_variables(
    properties: Mapping[str, str], *, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the properties with all variables resolved. Raises InvalidConfig, whose message never
    contains a resolved value: it may be a password."""
    providers = parse_providers(properties)
    for provider in providers.values():
        _check_allowed_paths(provider)
    result = dict(properties)
    for name, variables in find_variables(properties, providers).items():
        values = {}
        for variable in variables:
            try:
                values[variable] = _read(providers[variable.provider], variable, environment)
            except InvalidInput as error:
                raise InvalidConfig(f"{name}: {variable} {error}") from None
        result[name] = replace_variables(properties[name], values)
        _check_value(name, result[name], properties[name])
    return result


def _check_value(name: str, value: str, text: str) -> None:
    """Checks the type of a resolved value here: the messages of later checks contain the value."""
    key = keys_of([name]).get(name)
    if key is not None:
        try:
            key.parse(value)
        except InvalidConfig:
            raise InvalidConfig(
                f"Invalid value for configuration {name}: {text} does not resolve to a valid"
                f" {key.type.name.lower()} value"
            ) from None


def _check_allowed_paths(provider: Provider) -> None:
    for path in provider.allowed_paths or ():
        if not os.path.exists(path):
            raise InvalidConfig(
                f"config.providers.{provider.name}.param.allowed.paths contains {path!r}, which"
                " does not exist"
            )


def _read(provider: Provider, variable: Variable, environment: Mapping[str, str]) -> str:
    """Returns the value of a variable. The message of its InvalidInput continues a sentence that
    starts with the variable."""
    match provider.kind:
        case ProviderKind.ENVIRONMENT:
            return _read_environment(provider, variable, environment)
        case ProviderKind.FILE:
            values = parse_properties(_read_text(_allowed_path(provider, variable.path)))
            if variable.key not in values:
                raise InvalidInput("refers to a key that is not in the file")
            return values[variable.key]
        case ProviderKind.DIRECTORY:
            directory = _allowed_path(provider, variable.path)
            # The key is the name of a file, never a path to another directory.
            if os.path.basename(variable.key) != variable.key or variable.key in ("", ".", ".."):
                raise InvalidInput("must end with the name of a file in the directory")
            return _read_text(os.path.join(directory, variable.key))
        case _:
            assert_never(provider.kind)


def _read_environment(
    provider: Provider, variable: Variable, environment: Mapping[str, str]
) -> str:
    if variable.path:
        raise InvalidInput("has a path: environment variables have none, write ${provider:NAME}")
    if provider.allowlist is not None and not provider.allowlist.fullmatch(variable.key):
        raise InvalidInput(
            f"is not allowed by config.providers.{provider.name}.param.allowlist.pattern"
        )
    if variable.key not in environment:
        raise InvalidInput("refers to an environment variable that is not set")
    return environment[variable.key]


def _allowed_path(provider: Provider, path: str) -> str:
    """Returns the normalized path if it is allowed. As in Kafka, symbolic links are not resolved
    before the comparison."""
    if not path:
        raise InvalidInput("has no path: write ${provider:path:key}")
    normalized = os.path.normpath(path)
    allowed = provider.allowed_paths
    if allowed is None or any(
        _is_below(normalized, os.path.normpath(parent)) for parent in allowed
    ):
        return normalized
    raise InvalidInput(
        f"is not below a path of config.providers.{provider.name}.param.allowed.paths"
    )


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput("cannot be read: the file is not UTF-8 text") from None
