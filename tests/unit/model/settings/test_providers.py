import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.providers import (
    Provider,
    ProviderKind,
    Variable,
    find_variables,
    is_provider_setting,
    parse_providers,
    replace_variables,
)

FILE = ProviderKind.FILE.value
ENVIRONMENT = ProviderKind.ENVIRONMENT.value
PROVIDERS = {"file": Provider("file", ProviderKind.FILE)}


def test_providers_are_parsed_with_their_parameters() -> None:
    found = parse_providers(
        {
            "config.providers": "file, env",
            "config.providers.file.class": FILE,
            "config.providers.file.param.allowed.paths": "/etc/secrets, /run/secrets",
            "config.providers.env.class": ENVIRONMENT,
            "config.providers.env.param.allowlist.pattern": "KAFKA_.*",
        }
    )
    assert found["file"] == Provider("file", ProviderKind.FILE, ("/etc/secrets", "/run/secrets"))
    assert found["env"].kind is ProviderKind.ENVIRONMENT
    assert found["env"].allowlist is not None
    assert found["env"].allowlist.fullmatch("KAFKA_PASSWORD")
    assert parse_providers({"config.providers": ""}) == {}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "set config.providers.file.class to one of .*FileConfigProvider"),
        (
            {"config.providers.file.class": "org.example.Vault"},
            "org.example.Vault, but Lograft loads no Java classes: use one of .*EnvVarConfig",
        ),
        (
            {
                "config.providers.file.class": FILE,
                "config.providers.file.param.allowed.paths": "secrets",
            },
            "allowed.paths contains 'secrets': use absolute paths",
        ),
        (
            {
                "config.providers.file.class": ENVIRONMENT,
                "config.providers.file.param.allowlist.pattern": "(",
            },
            "allowlist.pattern is not a regular expression",
        ),
    ],
)
def test_invalid_providers_are_rejected(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_providers({"config.providers": "file"} | properties)


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("${file:/a/b:key}", [Variable("file", "/a/b", "key")]),
        ("${file:key}", [Variable("file", "", "key")]),
        ("${file:/a:b:c}", [Variable("file", "/a", "b:c")]),
        ("x${file:/a:b}y${file:/a:c}", [Variable("file", "/a", "b"), Variable("file", "/a", "c")]),
        ("${other:/a:b}", []),
        ("${file}", []),
        ("$file:/a:b", []),
    ],
)
def test_variables_of_declared_providers_are_found(text: str, variables: list[Variable]) -> None:
    found = find_variables({"broker.rack": text}, PROVIDERS)
    assert list(found.get("broker.rack", ())) == variables


def test_settings_of_providers_have_no_variables() -> None:
    properties = {"config.providers.file.param.allowed.paths": "${file:/a:b}"}
    assert find_variables(properties, PROVIDERS) == {}


def test_variables_are_replaced_once() -> None:
    password = Variable("file", "/a", "password")
    values = {password: "${file:/a:password}"}
    assert replace_variables("<${file:/a:password}>${env:X}", values) == (
        "<${file:/a:password}>${env:X}"
    )
    assert replace_variables("<${file:/a:password}>", {password: "p"}) == "<p>"


def test_variable_is_printed_as_written() -> None:
    assert str(Variable("file", "/a", "key")) == "${file:/a:key}"
    assert str(Variable("env", "", "KEY")) == "${env:KEY}"


def test_names_of_provider_settings() -> None:
    assert is_provider_setting("config.providers.file.class")
    assert is_provider_setting("config.providers.file.param.allowed.paths")
    assert not is_provider_setting("config.providers.file.other")
    assert not is_provider_setting("config.providers")
