"""Key sets from files, and from servers whose certificate is checked."""

import asyncio
import dataclasses
import ssl
from pathlib import Path

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.seams import Runtime
from lograft.model.settings.oauthbearer import OAuthBearerSettings, parse_provider_url
from lograft.net.identity_providers import KEY_SET_BYTES_MAX as READ_BYTES_MAX
from lograft.net.identity_providers import read_key_set
from lograft.net.sockets import SocketTransport
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers
from lograft.security.json_web_keys import KEY_SET_BYTES_MAX
from tests.support.scenarios import run_in_asyncio
from tests.unit.net.certificates import Authority


def settings(url: str, **trust: str) -> OAuthBearerSettings:
    return OAuthBearerSettings(
        unsecured=None,
        key_set_url=parse_provider_url(url, setting="x"),
        issuer=None,
        audiences=None,
        subject_claim="sub",
        scope_claim="scope",
        clock_skew_ms=0,
        refresh_ms=1,
        retry_backoff_ms=1,
        retry_backoff_max_ms=1,
        trust={name.replace("_", "."): value for name, value in trust.items()},
    )


async def read(asked: OAuthBearerSettings) -> bytes:
    workers = ThreadWorkers()
    try:
        async with asyncio.TaskGroup() as group:
            runtime: Runtime = system_runtime(
                transport=SocketTransport(), workers=workers, task_group=group
            )
            return await read_key_set(runtime, asked)
    except* InvalidConfig as errors:
        raise errors.exceptions[0] from None
    finally:
        workers.close()
    raise AssertionError


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"keys")

    async def body() -> None:
        assert await read(settings(f"file://{tmp_path}/a%20b")) == b"keys"
        with pytest.raises(InvalidConfig, match=r"cannot read .*No such file"):
            await read(settings(f"file://{tmp_path}/missing"))

    run_in_asyncio(body)


def test_a_server_with_tls(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "node.pem").write_text(authority.issue().pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "node.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkeys")
        await writer.drain()
        writer.close()

    async def body() -> None:
        server = await asyncio.start_server(serve, "localhost", 0, ssl=context)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/keys"
        trusting = settings(
            url, ssl_truststore_certificates=authority.pem, ssl_truststore_type="PEM"
        )
        assert await read(trusting) == b"keys"
        with pytest.raises(InvalidConfig, match=r"from localhost: .*CERT"):
            await read(settings(url))
        other = dataclasses.replace(
            trusting, trust={**trusting.trust, "ssl.truststore.certificates": Authority().pem}
        )
        with pytest.raises(InvalidConfig, match=r"from localhost: .*CERT"):
            await read(other)
        server.close()

    run_in_asyncio(body)


def test_the_limits_agree() -> None:
    assert READ_BYTES_MAX == KEY_SET_BYTES_MAX
