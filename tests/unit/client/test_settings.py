"""Settings of clients: dotted and underscored names, parsing, validation errors."""

import logging
from dataclasses import dataclass

import pytest

from lograft.client.client_settings import ClientSettings
from lograft.client.settings import Secret, Settings, at_least, setting
from lograft.model.errors import InvalidConfig

SERVERS = {"bootstrap.servers": "localhost:9092"}


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    linger_ms: int = setting(5, at_least(0))
    share: float = setting(0.5)
    is_on: bool = setting(True)
    names: tuple[str, ...] = setting(())
    password: Secret | None = setting(None)


def test_dotted_text_and_underscored_values_are_equivalent() -> None:
    from_file = Example.read(
        {"linger.ms": " 7 ", "share": "0.25", "is.on": "FALSE", "names": "a, b,"}
    )
    assert from_file == Example.read({}, linger_ms=7, share=0.25, is_on=False, names=["a", "b"])


def test_keywords_take_precedence_over_mapping() -> None:
    assert Example.read({"linger.ms": 1}, linger_ms=2).linger_ms == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"linger.ms": "-1"}, "linger.ms is -1, but must be at least 0"),
        ({"linger.ms": "soon"}, "linger.ms is 'soon', but must be an integer"),
        ({"linger.ms": 0.5}, "linger.ms is 0.5, but must be an integer"),
        ({"linger.ms": True}, "linger.ms is True, but must be an integer"),
        ({"is.on": "maybe"}, "is.on is 'maybe', but must be true or false"),
        ({"password": 3}, "password is 3, but must be a string"),
    ],
)
def test_invalid_value_is_reported_with_its_setting(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Example.read(values)
    assert str(caught.value) == message


def test_unknown_setting_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lograft.client"):
        Example.read({"lingr.ms": 3})
    assert "unknown setting lingr.ms" in caplog.text


def test_secrets_are_masked() -> None:
    settings = Example.read({"password": "open sesame"})
    assert "sesame" not in f"{settings} {settings.password}"
    assert settings.password is not None
    assert settings.password.reveal() == "open sesame"


def test_unsupported_setting_is_rejected_unless_it_is_the_default() -> None:
    ClientSettings.read({**SERVERS, "ssl.keymanager.algorithm": "SunX509"})
    with pytest.raises(InvalidConfig, match=r"ssl.keymanager.algorithm cannot be set: .* Java"):
        ClientSettings.read({**SERVERS, "ssl.keymanager.algorithm": "PKIX"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "bootstrap.servers must be set"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is empty"),
        ({"bootstrap.servers": "localhost"}, "host:port"),
        ({**SERVERS, "security.protocol": "HTTPS"}, "security.protocol is 'HTTPS'"),
        (
            {**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": "DIGEST-MD5"},
            "sasl.mechanism is 'DIGEST-MD5', but must be one of PLAIN",
        ),
        ({**SERVERS, "ssl.truststore.type": "BCFKS"}, "must be one of PEM, PKCS12, JKS"),
    ],
)
def test_settings_are_validated_together(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        ClientSettings.read(values)
