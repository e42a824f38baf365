"""Settings that all clients have: addresses, timeouts, security."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from lograft.client.metering.declarations import Level
from lograft.client.metering.registry import MetricReporter
from lograft.client.settings import Secret, Settings, UnsupportedSetting, at_least, one_of, setting
from lograft.client.unsupported_settings import UNSUPPORTED
from lograft.model.errors import InvalidConfig
from lograft.model.listeners import parse_address
from lograft.model.seams import Address
from lograft.net.tls_stores import TYPES as STORE_TYPES
from lograft.security.client_mechanisms import CLIENT_MECHANISMS, Credentials, jaas_credentials

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Values of client.dns.lookup. With both, a connection tries every address of its host.
USE_ALL_DNS_IPS: Final = "use_all_dns_ips"
RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY: Final = "resolve_canonical_bootstrap_servers_only"

_JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"

#: Returns a bearer token; called for each connection.
TokenProvider = Callable[[], Awaitable[str]]


def _without_jmx(value: Any) -> Any:
    """Removes Kafka's default, which is without meaning here. Text stays text, for `_convert`."""
    parts = value.strip("[]").split(",") if isinstance(value, str) else value
    return tuple(part for part in parts if part not in ("", _JMX_REPORTER))


def _are_callable(reporters: Any) -> str | None:
    if all(callable(reporter) for reporter in reporters):
        return None
    return "must be a list of functions that are called with the metrics of the client"


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """The settings that all clients have.

    settings = ClientSettings.read({"bootstrap.servers": "localhost:9092"})
    assert settings.connections_max_idle_ms == 540_000
    """

    bootstrap_servers: tuple[str, ...] = setting()
    client_dns_lookup: str = setting(
        USE_ALL_DNS_IPS, one_of(USE_ALL_DNS_IPS, RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY)
    )
    client_id: str = setting("")
    connections_max_idle_ms: int = setting(540_000)
    reconnect_backoff_ms: int = setting(50, at_least(0))
    reconnect_backoff_max_ms: int = setting(1_000, at_least(0))
    retry_backoff_ms: int = setting(100, at_least(0))
    retry_backoff_max_ms: int = setting(1_000, at_least(0))
    request_timeout_ms: int = setting(30_000, at_least(0))
    socket_connection_setup_timeout_ms: int = setting(10_000)
    socket_connection_setup_timeout_max_ms: int = setting(30_000)
    send_buffer_bytes: int = setting(131_072, at_least(-1))
    receive_buffer_bytes: int = setting(65_536, at_least(-1))
    metadata_max_age_ms: int = setting(300_000, at_least(0))
    metadata_recovery_strategy: str = setting("rebootstrap")
    metadata_recovery_rebootstrap_trigger_ms: int = setting(300_000, at_least(0))
    enable_metrics_push: bool = setting(True)
    metric_reporters: tuple[MetricReporter, ...] = setting((), _are_callable, convert=_without_jmx)
    metrics_num_samples: int = setting(2, at_least(1))
    metrics_recording_level: str = setting("INFO", one_of(*(level.name for level in Level)))
    metrics_sample_window_ms: int = setting(30_000, at_least(1))

    security_protocol: str = setting("PLAINTEXT")
    sasl_mechanism: str = setting("GSSAPI")
    #: Alternatives to the user name and password in `sasl.jaas.config`.
    sasl_username: str | None = setting(None)
    sasl_password: Secret | None = setting(None)
    sasl_jaas_config: Secret | None = setting(None)
    oauth_token: TokenProvider | None = setting(None)
    ssl_truststore_type: str = setting("PEM")
    ssl_truststore_location: str | None = setting(None)
    ssl_truststore_password: Secret | None = setting(None)
    ssl_truststore_certificates: Secret | None = setting(None)
    ssl_keystore_type: str = setting("PEM")
    ssl_keystore_location: str | None = setting(None)
    ssl_keystore_password: Secret | None = setting(None)
    ssl_keystore_key: Secret | None = setting(None)
    ssl_keystore_certificate_chain: Secret | None = setting(None)
    ssl_key_password: Secret | None = setting(None)
    ssl_endpoint_identification_algorithm: str = setting("https")
    ssl_protocol: str = setting("TLSv1.3")
    ssl_enabled_protocols: tuple[str, ...] = setting(("TLSv1.2", "TLSv1.3"))
    ssl_cipher_suites: tuple[str, ...] = setting(())

    unsupported: ClassVar[Mapping[str, UnsupportedSetting]] = UNSUPPORTED
    #: The first part of the groups of the client's metrics.
    kind: ClassVar[str] = ""

    def check(self) -> None:
        self.bootstrap_addresses()
        if self.security_protocol.upper() not in PROTOCOLS:
            raise InvalidConfig(
                f"security.protocol is {self.security_protocol!r}, but must be one of"
                f" {', '.join(PROTOCOLS)}"
            )
        if self.uses_sasl:
            self._check_sasl()
        if self.metadata_recovery_strategy.lower() not in ("rebootstrap", "none"):
            raise InvalidConfig(
                f"metadata.recovery.strategy is {self.metadata_recovery_strategy!r}, but must be"
                " rebootstrap or none"
            )
        for name, store in (
            ("ssl.keystore.type", self.ssl_keystore_type),
            ("ssl.truststore.type", self.ssl_truststore_type),
        ):
            if store.upper() not in STORE_TYPES:
                raise InvalidConfig(
                    f"{name} is {store!r}, but must be one of {', '.join(STORE_TYPES)}"
                )

    def _check_sasl(self) -> None:
        if self.sasl_mechanism not in CLIENT_MECHANISMS:
            raise InvalidConfig(
                f"sasl.mechanism is {self.sasl_mechanism!r}, but must be one of"
                f" {', '.join(CLIENT_MECHANISMS)}"
            )
        if self.sasl_mechanism != "OAUTHBEARER":
            self.sasl_credentials()
        elif self.oauth_token is None:
            raise InvalidConfig(
                "sasl.mechanism OAUTHBEARER requires oauth_token, an async function that returns a"
                " token"
            )

    def sasl_credentials(self) -> Credentials:
        """Returns sasl.username and sasl.password, or else those in sasl.jaas.config. Raises
        InvalidConfig."""
        if self.sasl_username is not None and self.sasl_password is not None:
            return Credentials(self.sasl_username, self.sasl_password.reveal())
        found = None
        if self.sasl_jaas_config is not None:
            text = self.sasl_jaas_config.reveal()
            found = jaas_credentials(text, self.sasl_mechanism, setting="sasl.jaas.config")
        if found is None:
            raise InvalidConfig(
                f"sasl.mechanism {self.sasl_mechanism} requires sasl.username and sasl.password,"
                " or username and password in sasl.jaas.config"
            )
        return found

    def bootstrap_addresses(self) -> list[Address]:
        if not self.bootstrap_servers:
            raise InvalidConfig("bootstrap.servers is empty: set it to host:port,…")
        return [parse_address("bootstrap.servers", server) for server in self.bootstrap_servers]

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.upper() in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.upper() in ("SASL_PLAINTEXT", "SASL_SSL")
