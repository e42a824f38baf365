"""`lograft.otlp.*`: the OpenTelemetry collector to which a node sends metrics and spans."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig

ENDPOINT: Final = "lograft.otlp.endpoint"
HEADERS: Final = "lograft.otlp.headers"
TRACES_ENABLE: Final = "lograft.otlp.traces.enable"
#: Of OTLP over HTTP.
DEFAULT_PORT: Final = 4318
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_PATH: Final = re.compile(r"[\x21-\x7e]*")
#: The exporter sets them.
_RESERVED: Final = frozenset({"host", "content-type", "content-length", "connection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSettings:
    address: Address
    uses_tls: bool
    #: Precedes /v1/metrics and /v1/traces; without a slash at its end.
    path: str
    #: May contain secrets.
    headers: tuple[tuple[str, str], ...]
    #: 0: no metrics.
    metrics_interval_ms: int
    exports_traces: bool
    traces_ratio: float
    opens_compressed: bool

    def __repr__(self) -> str:
        return f"OtlpSettings({self.url})"

    @property
    def url(self) -> str:
        return f"{'https' if self.uses_tls else 'http'}://{self.address}{self.path}"


def otlp_settings(config: "BrokerConfig") -> OtlpSettings | None:
    """Returns None if the node exports nothing. Raises InvalidConfig."""
    text = config.lograft_otlp_endpoint.strip()
    if not text:
        if config.lograft_otlp_traces_enable:
            raise InvalidConfig(
                f"{TRACES_ENABLE} needs a collector: set {ENDPOINT}, such as http://localhost:4318"
            )
        return None
    address, uses_tls, path = _parse_endpoint(text)
    headers = config.lograft_otlp_headers
    return OtlpSettings(
        address=address,
        uses_tls=uses_tls,
        path=path,
        headers=() if headers is None else _parse_headers(headers.value),
        metrics_interval_ms=config.lograft_otlp_metrics_interval_ms,
        exports_traces=config.lograft_otlp_traces_enable,
        traces_ratio=config.lograft_otlp_traces_ratio,
        opens_compressed=config.lograft_otlp_traces_compressed_enable,
    )


def _parse_endpoint(text: str) -> tuple[Address, bool, str]:
    # Not shown: it may contain a password.
    problem = f"{ENDPOINT} takes a URL such as http://localhost:4318"
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise InvalidConfig(problem) from None
    if url.scheme not in ("http", "https") or not url.hostname or not _PATH.fullmatch(url.path):
        raise InvalidConfig(problem)
    if url.query or url.fragment or url.username is not None:
        raise InvalidConfig(f"{problem}, without a user or a query: use {HEADERS} for secrets")
    address = Address(url.hostname, DEFAULT_PORT if port is None else port)
    return address, url.scheme == "https", url.path.rstrip("/")


def _parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Parses `name=value,name=value`. Errors contain no values."""
    headers = []
    for number, part in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        name, _, value = (each.strip() for each in part.partition("="))
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidConfig(
                f"{HEADERS}: header {number} is not valid: use name=value, separated by commas"
            )
        if name.lower() in _RESERVED:
            raise InvalidConfig(f"{HEADERS} cannot set {name}: the node sets it")
        headers.append((name, value))
    return tuple(headers)
