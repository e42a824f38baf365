"""`lograft.http.listeners`: where a node serves HTTP."""

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from lograft.model.errors import InvalidConfig
from lograft.model.hosts import is_loopback
from lograft.model.listeners import PORT_MAX, SecurityProtocol
from lograft.model.seams import Address
from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.sasl import (
    ENABLED_MECHANISMS,
    enabled_mechanisms,
    find_listener_problems,
)

SETTING: Final = "lograft.http.listeners"
AUTHENTICATION: Final = "lograft.http.authentication.enable"
#: PLAIN and SCRAM with Basic authentication, OAUTHBEARER with Bearer.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: For settings such as listener.name.http.ssl.keystore.location.
LISTENER_NAME: Final = "HTTP"


class HttpEndpoint(NamedTuple):
    address: Address
    uses_tls: bool

    def url(self, bound: Address) -> str:
        return f"{'https' if self.uses_tls else 'http'}://{bound}"


def http_endpoints(config: BrokerConfig) -> tuple[HttpEndpoint, ...]:
    """Raises InvalidConfig."""
    endpoints = tuple(_endpoint_of(text, config) for text in config.lograft_http_listeners)
    if len({endpoint.address for endpoint in endpoints if endpoint.address.port}) != len(
        [endpoint for endpoint in endpoints if endpoint.address.port]
    ):
        raise InvalidConfig(f"{SETTING} has the same address twice")
    if any(endpoint.uses_tls for endpoint in endpoints) and LISTENER_NAME in {
        listener.name for listener in config.listeners
    }:
        raise InvalidConfig(
            f"listener {LISTENER_NAME}: this name is reserved for the TLS settings of"
            f" {SETTING}: choose another one"
        )
    if config.lograft_http_authentication_enable:
        _check_mechanisms(config)
    return endpoints


def unencrypted_endpoints(endpoints: Iterable[HttpEndpoint]) -> list[HttpEndpoint]:
    """Returns those on which passwords could be read on the network."""
    return [
        endpoint
        for endpoint in endpoints
        if not endpoint.uses_tls and not is_loopback(endpoint.address.host)
    ]


def _check_mechanisms(config: BrokerConfig) -> None:
    setting = f"listener.name.{LISTENER_NAME.lower()}.{ENABLED_MECHANISMS}"
    unusable = sorted(set(enabled_mechanisms(config, LISTENER_NAME)) - set(MECHANISMS))
    if unusable:
        raise InvalidConfig(
            f"{AUTHENTICATION} is true, but {', '.join(unusable)} cannot be used over HTTP: set"
            f" {setting} to one or more of {', '.join(MECHANISMS)}"
        )
    for _, problem in find_listener_problems(config, LISTENER_NAME, SecurityProtocol.SASL_SSL):
        raise InvalidConfig(f"{AUTHENTICATION}: {problem}")


def _endpoint_of(text: str, config: BrokerConfig) -> HttpEndpoint:
    example = f"{SETTING} takes URLs such as http://localhost:8082"
    try:
        url = urlsplit(text.strip())
        port = url.port
    except ValueError:
        raise InvalidConfig(f"{SETTING} has {text!r}: {example}") from None
    if url.scheme not in ("http", "https") or not url.hostname or port is None:
        raise InvalidConfig(f"{SETTING} has {text!r}: {example}")
    if url.path.strip("/") or url.query or url.fragment or url.username is not None:
        raise InvalidConfig(f"{SETTING} has {text!r}: {example}, without a path or a user")
    assert 0 <= port <= PORT_MAX
    if not is_loopback(url.hostname) and not config.lograft_http_authentication_enable:
        raise InvalidConfig(
            f"{SETTING} has {text!r}, which other machines may reach without authentication: set"
            f" {AUTHENTICATION}=true, or use a loopback address such as http://localhost:8082"
        )
    return HttpEndpoint(Address(url.hostname, port), uses_tls=url.scheme == "https")
