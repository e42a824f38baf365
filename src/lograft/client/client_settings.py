"""Settings that all clients have: addresses, timeouts, security."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

from lograft.client.metering.declarations import Level
from lograft.client.metering.registry import MetricReporter
from lograft.client.settings import Secret, Settings, UnsupportedSetting, at_least, one_of, setting
from lograft.client.token_retrieval import TokenRetriever, token_endpoint
from lograft.client.unsupported_settings import UNSUPPORTED
from lograft.model.errors import InvalidConfig
from lograft.model.listeners import parse_address
from lograft.model.seams import Address
from lograft.model.settings.kerberos import KerberosLogin, kerberos_login
from lograft.net.tls_stores import TYPES as STORE_TYPES
from lograft.runtime import kerberos
from lograft.security.client_mechanisms import (
    CLIENT_MECHANISMS,
    Credentials,
    jaas_credentials,
    jaas_entry_of,
)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Values of client.dns.lookup. With both, a connection tries every address of its host.
USE_ALL_DNS_IPS: Final = "use_all_dns_ips"
RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY: Final = "resolve_canonical_bootstrap_servers_only"

_JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"

#: Kafka's classes that retrieve tokens as `client/token_retrieval.py` does.
LOGIN_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
#: Of sasl.login.connect.timeout.ms and sasl.login.read.timeout.ms, which Kafka does not limit.
LOGIN_TIMEOUT_MS: Final = 10_000
#: Returns a bearer token; called for each connection.
TokenProvider = Callable[[], Awaitable[str]]


def _without_jmx(value: Any) -> Any:
    """Removes Kafka's default, which is without meaning here. Text stays text, for `_convert`."""
    parts = value.strip("[]").split(",") if isinstance(value, str) else value
    return tuple(part for part in parts if part not in ("", _JMX_REPORTER))


def _is_positive(value: int | None) -> str | None:
    return None if value is None or value > 0 else "must be at least 1"


def _is_window_factor(value: float) -> str | None:
    return None if 0.5 <= value <= 1 else "must be 0.5 to 1"


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
    sasl_kerberos_service_name: str | None = setting(None)
    oauth_token: TokenProvider | None = setting(None)
    #: An alternative to `oauth_token`: a file or an identity provider.
    sasl_oauthbearer_token_endpoint_url: str | None = setting(None)
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(None)
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = setting(None)
    sasl_oauthbearer_scope: str | None = setting(None)
    sasl_login_callback_handler_class: str | None = setting(None)
    sasl_login_connect_timeout_ms: int | None = setting(None, _is_positive)
    sasl_login_read_timeout_ms: int | None = setting(None, _is_positive)
    sasl_login_refresh_window_factor: float = setting(0.8, _is_window_factor)
    sasl_login_retry_backoff_ms: int = setting(100, at_least(1))
    sasl_login_retry_backoff_max_ms: int = setting(10_000, at_least(0))
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
        if self.sasl_login_callback_handler_class not in (None, *LOGIN_HANDLERS):
            raise InvalidConfig(
                "sasl.login.callback.handler.class is not supported, because Java classes are not"
                f" loaded: remove it, or set it to {LOGIN_HANDLERS[0]}"
            )
        if self.sasl_mechanism == "GSSAPI":
            if not kerberos.is_installed():
                raise InvalidConfig(kerberos.MISSING)
            self.kerberos_login()
        elif self.sasl_mechanism != "OAUTHBEARER":
            self.sasl_credentials()
        elif self.oauth_token is None and self.token_retriever is None:
            raise InvalidConfig(
                "sasl.mechanism OAUTHBEARER requires oauth_token, an async function that returns a"
                " token, or sasl.oauthbearer.token.endpoint.url"
            )

    def kerberos_login(self) -> KerberosLogin:
        """Raises InvalidConfig."""
        entry = None
        if self.sasl_jaas_config is not None:
            text = self.sasl_jaas_config.reveal()
            entry = jaas_entry_of(text, "GSSAPI", setting="sasl.jaas.config")
        return kerberos_login(entry, self.sasl_kerberos_service_name)

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

    @cached_property
    def token_retriever(self) -> TokenRetriever | None:
        """Retrieves and keeps the tokens of sasl.oauthbearer.token.endpoint.url; None without that
        setting. Raises InvalidConfig."""
        url = self.sasl_oauthbearer_token_endpoint_url
        if url is None:
            return None
        jaas_config = self.sasl_jaas_config
        secret = self.sasl_oauthbearer_client_credentials_client_secret
        return TokenRetriever(
            token_endpoint(
                url,
                jaas_config=None if jaas_config is None else jaas_config.reveal(),
                client_id=self.sasl_oauthbearer_client_credentials_client_id,
                client_secret=None if secret is None else secret.reveal(),
                scope=self.sasl_oauthbearer_scope,
                timeout_ms=(self.sasl_login_connect_timeout_ms or LOGIN_TIMEOUT_MS)
                + (self.sasl_login_read_timeout_ms or LOGIN_TIMEOUT_MS),
                retry_backoff_ms=self.sasl_login_retry_backoff_ms,
                retry_backoff_max_ms=self.sasl_login_retry_backoff_max_ms,
                refresh_factor=self.sasl_login_refresh_window_factor,
            )
        )

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
