"""Reads the key sets of identity providers, from files and over HTTP."""

from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address, Runtime, Transport
from lograft.model.settings.oauthbearer import OAuthBearerSettings
from lograft.net.http_requests import HttpFailed, HttpRequest, fetch
from lograft.net.tls import TlsTransport
from lograft.net.tls_contexts import TlsParameters, client_context
from lograft.net.tls_stores import StoreSettings, read_trust_store

TIMEOUT_MS: Final = 10_000
#: As much as `security/json_web_keys.py` accepts.
BYTES_MAX: Final = 256 << 10


async def read_key_set(runtime: Runtime, settings: OAuthBearerSettings) -> bytes:
    """Returns the bytes of the key set. Raises InvalidConfig, which has none of them."""
    url = settings.key_set_url
    assert url is not None, "unsecured tokens have no keys"
    if url.scheme == "file":
        return await runtime.workers.run(lambda: _read_file(runtime, url.path))
    transport: Transport = runtime.transport
    if url.scheme == "https":
        transport = await runtime.workers.run(lambda: _tls_transport(runtime, settings))
    request = HttpRequest(
        Address(url.host, url.port), url.path, headers=[("Accept", "application/json")]
    )
    try:
        return await fetch(transport, request, bytes_max=BYTES_MAX, timeout_ms=TIMEOUT_MS)
    except HttpFailed as error:
        raise InvalidConfig(f"cannot get the key set from {url.host}: {error}") from None


def _read_file(runtime: Runtime, path: str) -> bytes:
    try:
        return runtime.disk.read(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidConfig(f"cannot read the key set in {path}: {reason}") from None


def _tls_transport(runtime: Runtime, settings: OAuthBearerSettings) -> Transport:
    """Trusts the system's certificate authorities, or those in the options of the login module."""
    trust = settings.trust
    where = "sasl.jaas.config of oauthbearer: "
    store = read_trust_store(
        StoreSettings(
            store="truststore",
            where=where,
            type=trust.get("ssl.truststore.type", "JKS"),
            location=trust.get("ssl.truststore.location"),
            password=trust.get("ssl.truststore.password"),
            certificates=trust.get("ssl.truststore.certificates"),
        )
    )
    context = client_context(TlsParameters(where=where, trust_store=store))
    return TlsTransport(runtime.transport, client=context)
