"""From Kafka's `ssl.*` settings of a listener to the SSLContexts of both sides. PEM files only."""

import ssl
from typing import Final

from lograft.model.broker_configs import BrokerConfig
from lograft.model.errors import InvalidConfig
from lograft.net.pem_files import STORES, check_pem_file
from lograft.net.tls import client_context, server_context

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def listener_context(config: BrokerConfig, listener: str) -> ssl.SSLContext:
    """Refuses by name what cannot be served: a listener must never fall back to less."""
    _check_stores(config, listener)
    certificate_file = config.text("ssl.keystore.location", listener=listener)
    if not certificate_file:
        raise InvalidConfig(
            f"listener {listener} speaks TLS, so it needs ssl.keystore.type=PEM and"
            " ssl.keystore.location with the private key and certificate chain in PEM"
        )
    client_auth = (config.text("ssl.client.auth", listener=listener) or "none").lower()
    trust_file = config.text("ssl.truststore.location", listener=listener)
    if client_auth == "required" and not trust_file:
        raise InvalidConfig(
            f"listener {listener}: ssl.client.auth=required needs ssl.truststore.location with the"
            " certificates of those who may sign clients' certificates"
        )
    try:
        return server_context(
            certificate_file=certificate_file,
            key_password=config.secret("ssl.key.password", listener=listener),
            trust_file=trust_file or None,
            client_certificate=_CLIENT_AUTH[client_auth],
        )
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(
            f"listener {listener}: {certificate_file} cannot be used: {error}"
        ) from None


def connector_context(config: BrokerConfig, listener: str) -> ssl.SSLContext:
    """For connecting to other nodes at their listener of that name, as Kafka's nodes do: with the
    same stores as our own."""
    _check_stores(config, listener)
    certificate_file = config.text("ssl.keystore.location", listener=listener) or None
    trust_file = config.text("ssl.truststore.location", listener=listener) or None
    comparison = config.text("ssl.endpoint.identification.algorithm", listener=listener)
    try:
        return client_context(
            trust_file=trust_file,
            certificate_file=certificate_file,
            key_password=config.secret("ssl.key.password", listener=listener),
            compares_hosts=bool((comparison or "").strip()),
        )
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(
            f"listener {listener}: {certificate_file} and {trust_file} cannot be used to reach"
            f" other nodes: {error}"
        ) from None


def _check_stores(config: BrokerConfig, listener: str) -> None:
    for store in STORES:
        setting = f"ssl.{store}"
        location = config.text(f"{setting}.location", listener=listener)
        kind = config.text(f"{setting}.type", listener=listener)
        if not location:
            continue
        if (kind or "").upper() != "PEM":
            raise InvalidConfig(
                f"listener {listener}: {setting}.type is {kind}, but only PEM is read: set"
                f" {setting}.type=PEM and {setting}.location to a file with the certificates in PEM"
            )
        check_pem_file(f"listener {listener}: {setting}.location", location, store)
