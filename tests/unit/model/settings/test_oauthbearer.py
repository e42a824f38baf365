"""A listener that would accept the wrong tokens is rejected at start."""

import pytest

from lograft.cli.node_runner import embedded_properties
from lograft.model.errors import InvalidConfig
from lograft.model.settings.broker import BrokerConfig, broker_config, find_key
from lograft.model.settings.jaas import OAUTHBEARER_MODULE
from lograft.model.settings.keys import Unsupported, Used
from lograft.model.settings.oauthbearer import (
    UNSECURED_HANDLER,
    VALIDATING_HANDLERS,
    ProviderUrl,
    oauthbearer_settings,
    parse_provider_url,
)

PREFIX = "listener.name.outside."
HANDLER = f"{PREFIX}oauthbearer.sasl.server.callback.handler.class"
URL = "https://issuer.example:8443/keys?x=1"
SETTINGS = {
    "sasl.oauthbearer.jwks.endpoint.url": URL,
    "lograft.oauthbearer.allowed.urls": f"file:///a, {URL}",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "one,two",
    HANDLER: VALIDATING_HANDLERS[0],
}


def config(changes: dict[str, str | None]) -> BrokerConfig:
    values = embedded_properties("data", 9092) | {
        "listeners": "PLAINTEXT://localhost:9092,OUTSIDE://localhost:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ",OUTSIDE:SASL_PLAINTEXT",
        f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    changed = {**values, **SETTINGS, **changes}
    return broker_config({name: text for name, text in changed.items() if text is not None})


def test_settings_of_a_listener() -> None:
    settings = oauthbearer_settings(
        config(
            {
                "sasl.oauthbearer.clock.skew.seconds": "5",
                f"{PREFIX}sasl.oauthbearer.clock.skew.seconds": "6",
                f"{PREFIX}oauthbearer.sasl.oauthbearer.clock.skew.seconds": "7",
                f"{PREFIX}sasl.oauthbearer.sub.claim.name": "client_id",
                f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required"
                ' ssl.truststore.location="/ca.pem" x="c4n4ry";',
            }
        ),
        "OUTSIDE",
    )
    assert settings.key_set_url == ProviderUrl(URL, "https", "issuer.example", 8443, "/keys?x=1")
    assert (settings.issuer, settings.audiences) == (
        "https://issuer.example",
        frozenset({"one", "two"}),
    )
    assert (settings.clock_skew_ms, settings.subject_claim) == (7_000, "client_id")
    assert (settings.refresh_ms, settings.retry_backoff_max_ms) == (3_600_000, 10_000)
    assert settings.trust == {"ssl.truststore.location": "/ca.pem"}
    assert settings.unsecured is None
    assert "issuer" not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "no keys to verify tokens: set sasl"),
        ({"lograft.oauthbearer.allowed.urls": None}, "add it to lograft.oauthbearer.allowed"),
        ({"lograft.oauthbearer.allowed.urls": f"{URL}/"}, "add it to lograft.oauthbearer.allowed"),
        ({"sasl.oauthbearer.expected.issuer": None}, "tokens of any issuer: set"),
        ({"sasl.oauthbearer.expected.issuer": " "}, "tokens of any issuer: set"),
        ({"sasl.oauthbearer.expected.audience": ""}, "tokens for other services: set"),
        ({HANDLER: "org.example.Handler"}, "Java classes are not loaded"),
        ({HANDLER: UNSECURED_HANDLER}, "unsigned tokens, which anyone can forge: set"),
        ({"sasl.oauthbearer.jwt.validator.class": "org.example.X"}, "Java classes are not loaded"),
        ({"sasl.oauthbearer.sub.claim.name": ""}, "must not be empty"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "must be at least 0"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "must be at least 1"),
        (
            {f"{PREFIX}oauthbearer.sasl.jaas.config": "org.example.Login required;"},
            "is not supported",
        ),
    ],
)
def test_listeners_that_are_rejected(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        config(changes)


def test_missing_checks_must_be_intended() -> None:
    settings = oauthbearer_settings(
        config(
            {
                "sasl.oauthbearer.expected.issuer": None,
                "sasl.oauthbearer.expected.audience": None,
                "lograft.oauthbearer.any.issuer": "true",
                "lograft.oauthbearer.any.audience": "true",
            }
        ),
        "OUTSIDE",
    )
    assert (settings.issuer, settings.audiences) == (None, None)


def test_unsecured_tokens_must_be_enabled() -> None:
    changes: dict[str, str | None] = dict.fromkeys(SETTINGS)
    changes |= {
        HANDLER: UNSECURED_HANDLER,
        "lograft.oauthbearer.unsecured.tokens.enable": "true",
        f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required"
        ' unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="9";',
    }
    unsecured = oauthbearer_settings(config(changes), "OUTSIDE").unsecured
    assert unsecured is not None
    assert (unsecured.subject_claim, unsecured.scope_claim) == ("sub", "scope")
    assert (unsecured.required_scopes, unsecured.clock_skew_ms) == (frozenset("ab"), 9)
    changes[f"{PREFIX}oauthbearer.sasl.jaas.config"] = (
        f'{OAUTHBEARER_MODULE} required unsecuredValidatorAllowableClockSkewMs="-1";'
    )
    with pytest.raises(InvalidConfig, match="must be a number of milliseconds"):
        config(changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:///etc/a%20b.json", ProviderUrl("", "file", "", 0, "/etc/a b.json")),
        ("http://h", ProviderUrl("", "http", "h", 80, "/")),
        ("HTTPS://H/p", ProviderUrl("", "https", "h", 443, "/p")),
        ("http://[::1]:81/p", ProviderUrl("", "http", "::1", 81, "/p")),
    ],
)
def test_urls(text: str, expected: ProviderUrl) -> None:
    assert parse_provider_url(text, setting="x") == expected._replace(text=text)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://h/c4n4ry",
        "c4n4ry",
        "file:c4n4ry.json",
        "file://host/c4n4ry",
        "https:///c4n4ry",
        "https://user:c4n4ry@h/",
        "https://h/#c4n4ry",
        "https://h:99999/c4n4ry",
        "https://h/a b",
        "https://h/\r\nX: c4n4ry",
        "jndi:ldap://h/c4n4ry",
    ],
)
def test_urls_that_are_rejected(text: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse_provider_url(text, setting="x")
    assert "c4n4ry" not in str(raised.value)


def test_only_oauthbearer_may_have_a_handler() -> None:
    key = find_key(HANDLER)
    assert key is not None
    assert isinstance(key.effect, Used)
    for name in (
        "sasl.server.callback.handler.class",
        f"{PREFIX}plain.sasl.server.callback.handler.class",
    ):
        key = find_key(name)
        assert key is not None
        assert isinstance(key.effect, Unsupported)
