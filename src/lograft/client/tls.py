"""Builds an SSLContext from a client's `ssl.*` settings."""

import ssl

from lograft.client.client_settings import ClientSettings
from lograft.client.settings import Secret
from lograft.net.tls_contexts import TlsParameters, client_context
from lograft.net.tls_stores import StoreSettings, read_key_store, read_trust_store


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    """Returns the context. Raises InvalidConfig, which names the invalid setting."""
    key_store = StoreSettings(
        store="keystore",
        type=settings.ssl_keystore_type,
        location=settings.ssl_keystore_location or None,
        password=_text(settings.ssl_keystore_password),
        certificates=_text(settings.ssl_keystore_certificate_chain),
        key=_text(settings.ssl_keystore_key),
        key_password=_text(settings.ssl_key_password),
    )
    trust_store = StoreSettings(
        store="truststore",
        type=settings.ssl_truststore_type,
        location=settings.ssl_truststore_location or None,
        password=_text(settings.ssl_truststore_password),
        certificates=_text(settings.ssl_truststore_certificates),
    )
    return client_context(
        TlsParameters(
            key_store=read_key_store(key_store),
            trust_store=read_trust_store(trust_store),
            endpoint_identification=settings.ssl_endpoint_identification_algorithm,
            protocol=settings.ssl_protocol,
            enabled_protocols=settings.ssl_enabled_protocols,
            cipher_suites=settings.ssl_cipher_suites,
        )
    )


def _text(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal() or None
