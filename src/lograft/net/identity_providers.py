"""Reads key sets and tokens of identity providers, from files and over HTTP."""

from collections.abc import Mapping, Sequence
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address, Runtime, Transport
from lograft.model.settings.oauthbearer import OAuthBearerSettings, ProviderUrl
from lograft.net.http_requests import HttpFailed, HttpRequest, fetch
from lograft.net.tls import TlsTransport
from lograft.net.tls_contexts import TlsParameters, client_context
from lograft.net.tls_stores import StoreSettings, read_trust_store

KEY_SET_TIMEOUT_MS: Final = 10_000
#: As much as `security/json_web_keys.py` accepts.
KEY_SET_BYTES_MAX: Final = 256 << 10


async def read_key_set(runtime: Runtime, settings: OAuthBearerSettings) -> bytes:
    """Returns the bytes of the key set. Raises InvalidConfig, whose message never includes those
    bytes."""
    url = settings.key_set_url
    assert url is not None, "unsecured tokens have no keys"
    try:
        return await read_url(
            runtime,
            url,
            trust=settings.trust,
            bytes_max=KEY_SET_BYTES_MAX,
            timeout_ms=KEY_SET_TIMEOUT_MS,
        )
    except HttpFailed as error:
        raise InvalidConfig(f"cannot get the key set from {url.location}: {error}") from None


async def read_url(
    runtime: Runtime,
    url: ProviderUrl,
    *,
    trust: Mapping[str, str],
    bytes_max: int,
    timeout_ms: int,
    form: bytes | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Returns the content of a file, or the body of the response to a GET request, or to a POST
    request with a form. `trust`: options of the login module, which replace the system's
    certificate authorities. Raises HttpFailed or InvalidConfig, without any part of the content."""
    if url.scheme == "file":
        return await runtime.workers.run(lambda: _read_file(runtime, url.path, bytes_max))
    transport: Transport = runtime.transport
    if url.scheme == "https":
        transport = await runtime.workers.run(lambda: _tls_transport(runtime, trust))
    request = HttpRequest(
        Address(url.host, url.port),
        url.path,
        method="GET" if form is None else "POST",
        headers=[("Accept", "application/json"), *headers],
        body=form or b"",
    )
    return await fetch(transport, request, bytes_max=bytes_max, timeout_ms=timeout_ms)


def _read_file(runtime: Runtime, path: str, bytes_max: int) -> bytes:
    try:
        data = runtime.disk.read(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidConfig(f"cannot read {path}: {reason}") from None
    if len(data) > bytes_max:
        raise InvalidConfig(f"{path} has more than {bytes_max} bytes")
    return data


def _tls_transport(runtime: Runtime, trust: Mapping[str, str]) -> Transport:
    where = "sasl.jaas.config of OAUTHBEARER: "
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
