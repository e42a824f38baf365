"""`lograft.http.listeners`: where a node serves HTTP."""

from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from lograft.model.errors import InvalidConfig
from lograft.model.listeners import PORT_MAX
from lograft.model.seams import Address
from lograft.model.settings.broker import BrokerConfig

SETTING: Final = "lograft.http.listeners"
#: For settings such as listener.name.http.ssl.keystore.location.
LISTENER_NAME: Final = "HTTP"


class HttpEndpoint(NamedTuple):
    address: Address
    uses_tls: bool

    def url(self, bound: Address) -> str:
        return f"{'https' if self.uses_tls else 'http'}://{bound}"


def http_endpoints(config: BrokerConfig) -> tuple[HttpEndpoint, ...]:
    """Raises InvalidConfig."""
    endpoints = tuple(_endpoint_of(text) for text in config.lograft_http_listeners)
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
    return endpoints


def _endpoint_of(text: str) -> HttpEndpoint:
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
    if not _is_loopback(url.hostname):
        raise InvalidConfig(
            f"{SETTING} has {text!r}: the HTTP listener has no authentication yet and accepts only"
            " loopback addresses, such as http://localhost:8082"
        )
    return HttpEndpoint(Address(url.hostname, port), uses_tls=url.scheme == "https")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
