"""From a client's `ssl.*` settings to an SSLContext. PEM text or PEM files."""

import ssl
from typing import Final

from lograft.client.client_settings import ClientSettings
from lograft.model.errors import InvalidConfig
from lograft.net.pem_files import check_pem_file
from lograft.net.tls import load_pem_text

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    """Raises InvalidConfig naming the setting that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS.get(name) for name in settings.ssl_enabled_protocols]
    known = [version for version in versions if version is not None]
    if len(known) != len(versions) or not known:
        raise InvalidConfig(f"ssl.enabled.protocols may name {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(known), max(known)
    context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm.strip())
    try:
        if settings.ssl_cipher_suites:
            context.set_ciphers(":".join(settings.ssl_cipher_suites))
        _trust(context, settings)
        _identify(context, settings)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise InvalidConfig(f"the ssl.* settings cannot be used: {error}") from None
    return context


def _trust(context: ssl.SSLContext, settings: ClientSettings) -> None:
    if settings.ssl_truststore_certificates is not None:
        context.load_verify_locations(cadata=settings.ssl_truststore_certificates.reveal())
    elif settings.ssl_truststore_location is not None:
        check_pem_file("ssl.truststore.location", settings.ssl_truststore_location, "truststore")
        context.load_verify_locations(settings.ssl_truststore_location)
    else:
        context.load_default_certs()


def _identify(context: ssl.SSLContext, settings: ClientSettings) -> None:
    """The client's own certificate."""
    password = settings.ssl_key_password
    secret = None if password is None else password.reveal()
    if settings.ssl_keystore_location is not None:
        check_pem_file("ssl.keystore.location", settings.ssl_keystore_location, "keystore")
        context.load_cert_chain(settings.ssl_keystore_location, password=secret)
    elif settings.ssl_keystore_key is not None:
        chain = settings.ssl_keystore_certificate_chain
        if chain is None:
            raise InvalidConfig("ssl.keystore.key needs ssl.keystore.certificate.chain")
        load_pem_text(context, settings.ssl_keystore_key.reveal(), chain.reveal(), secret)
