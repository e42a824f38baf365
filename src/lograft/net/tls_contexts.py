"""Creates SSLContexts from loaded stores and settings, for both sides of a connection."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.net.tls_stores import KeyStore, TrustStore
from lograft.net.tls_suites import restrict

CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_ENCRYPTED_KEY: Final = ("ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsParameters:
    """Everything on which the TLS connections of a listener or client depend. Equal parameters
    result in equal contexts: the content of the stores is included."""

    #: Start of every error message: the listener, for a node.
    where: str = ""
    key_store: KeyStore | None = None
    #: None: the system's certificate authorities, for connections that this side opens.
    trust_store: TrustStore | None = None
    client_auth: str = "none"
    endpoint_identification: str = "https"
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    #: Certificate revocation lists in PEM; empty: revocation is not checked.
    revocation_lists: str = ""


def server_context(parameters: TlsParameters) -> ssl.SSLContext:
    """Returns the context for accepting connections. Raises InvalidConfig."""
    where, trust_store = parameters.where, parameters.trust_store
    context = _context(ssl.PROTOCOL_TLS_SERVER, parameters)
    if parameters.key_store is None:
        raise InvalidConfig(
            f"{where}a TLS listener needs a private key and a certificate: set"
            " ssl.keystore.location to a PKCS #12 store or PEM file, or ssl.keystore.key and"
            " ssl.keystore.certificate.chain to PEM text"
        )
    if parameters.client_auth == "required" and trust_store is None:
        raise InvalidConfig(
            f"{where}ssl.client.auth=required needs the certificates of the authorities that sign"
            " clients' certificates: set ssl.truststore.location or ssl.truststore.certificates"
        )
    _identify(context, where, parameters.key_store)
    if trust_store is not None:
        _trust(context, where, trust_store)
    _check_revocation(context, parameters)
    context.verify_mode = CLIENT_AUTH[parameters.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        # A resumed session would not check whether the certificate has expired since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def client_context(parameters: TlsParameters) -> ssl.SSLContext:
    """Returns the context for opening connections. Raises InvalidConfig."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, parameters)
    context.check_hostname = _compares_hosts(parameters)
    if parameters.trust_store is None:
        context.load_default_certs()
    else:
        _trust(context, parameters.where, parameters.trust_store)
    _check_revocation(context, parameters)
    if parameters.key_store is not None:
        _identify(context, parameters.where, parameters.key_store)
    return context


def _check_revocation(context: ssl.SSLContext, parameters: TlsParameters) -> None:
    """Rejects revoked certificates, and those of authorities without a current list."""
    if not parameters.revocation_lists:
        return
    try:
        with private_file(parameters.revocation_lists.encode()) as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise InvalidConfig(
            f"{parameters.where}lograft.ssl.crl.location has no valid certificate revocation"
            f" lists: {error}"
        ) from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _context(side: int, parameters: TlsParameters) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    restrict(
        context,
        where=parameters.where,
        protocol=parameters.protocol,
        enabled_protocols=parameters.enabled_protocols,
        cipher_suites=parameters.cipher_suites,
    )
    return context


def _compares_hosts(parameters: TlsParameters) -> bool:
    algorithm = parameters.endpoint_identification.strip().lower()
    if algorithm not in ("", "https"):
        raise InvalidConfig(
            f"{parameters.where}ssl.endpoint.identification.algorithm is"
            f" {parameters.endpoint_identification}, but must be https, or empty to accept"
            " certificates of any host"
        )
    return algorithm == "https"


def _trust(context: ssl.SSLContext, where: str, store: TrustStore) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(dict.fromkeys(store.certificates)))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(f"{where}{store.source} cannot be used: {error}") from None
    # As in Java, every certificate of a trust store is trusted, not only self-signed ones.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def _identify(context: ssl.SSLContext, where: str, store: KeyStore) -> None:
    def password() -> str:
        # Never None, because OpenSSL would then prompt on the terminal.
        return store.key_password or ""

    is_encrypted = any(mark in store.key for mark in _ENCRYPTED_KEY)
    if store.key_password is not None and not is_encrypted:
        raise InvalidConfig(
            f"{where}ssl.key.password is set, but the private key of {store.source} is not"
            " encrypted: remove ssl.key.password"
        )
    try:
        with private_file(store.to_pem().encode()) as path:
            context.load_cert_chain(path, password=password)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            f"{where}{store.source} cannot be used: {_explain(error, store, is_encrypted)}"
        ) from None


def _explain(error: ssl.SSLError | ValueError, store: KeyStore, is_encrypted: bool) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    if is_encrypted:
        state = "wrong" if store.key_password else "missing"
        return f"the private key is encrypted and ssl.key.password is {state}"
    return str(error)


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """Returns the path of a file with this content, which exists as long as the with block.

    OpenSSL reads private keys only from files. On Linux this is an anonymous file in memory, which
    no other user can open and which does not remain after a crash; elsewhere it is a temporary file
    that only its owner can read.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("lograft-tls")
        path = f"/proc/self/fd/{descriptor}"
        try:
            # Some containers have no /proc.
            if os.path.exists(path):
                with os.fdopen(descriptor, "wb", closefd=False) as file:
                    file.write(content)
                yield path
                return
        finally:
            os.close(descriptor)
    descriptor, path = tempfile.mkstemp(prefix="lograft-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        Path(path).unlink()
