"""Tokens from a file and from an identity provider, over real sockets."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lograft.client.client_settings import ClientSettings
from lograft.client.token_retrieval import TokenNotRetrieved, TokenRetriever
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Runtime
from lograft.model.settings.jaas import OAUTHBEARER_MODULE, SCRAM_MODULE
from lograft.net.sockets import SocketTransport
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers
from tests.support.identity_provider import part
from tests.support.scenarios import run_in_asyncio

SECRET = "c4n4ry"
USUAL: dict[str, Any] = {
    "bootstrap_servers": "localhost:1",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    "sasl_login_retry_backoff_ms": 1,
    "sasl_login_retry_backoff_max_ms": 50,
}


def settings(url: str, **others: Any) -> ClientSettings:
    return ClientSettings.read({**USUAL, "sasl_oauthbearer_token_endpoint_url": url, **others})


def retriever(url: str, **others: Any) -> TokenRetriever:
    found = settings(url, **others).token_retriever
    assert found is not None
    return found


def answer(body: Any, status: str = "200 OK") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def jwt(expires_s: float, name: str = "a") -> str:
    return f"{part({'alg': 'RS256'})}.{part({'exp': expires_s, 'sub': name})}.c2ln"


class Provider:
    """Answers with `answers` in order, the last one again and again."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        self.requests.append(head + await reader.readexactly(size))
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        await writer.drain()
        writer.close()


@asynccontextmanager
async def provider(*answers: bytes) -> AsyncIterator[tuple[Provider, Runtime]]:
    found = Provider(*answers)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token?x=1"
    workers = ThreadWorkers()
    try:
        async with asyncio.TaskGroup() as group:
            yield (
                found,
                system_runtime(transport=SocketTransport(), workers=workers, task_group=group),
            )
    finally:
        server.close()
        workers.close()


def play(body: Callable[[Provider, Runtime], Any], *answers: bytes) -> None:
    async def main() -> None:
        async with provider(*answers) as (found, runtime):
            await body(found, runtime)

    run_in_asyncio(main)


def now_s(runtime: Runtime) -> float:
    return runtime.clock.wall_ms() / 1000


def test_a_token_of_a_provider_is_kept_until_most_of_its_lifetime_has_passed() -> None:
    async def body(found: Provider, runtime: Runtime) -> None:
        tokens = [jwt(now_s(runtime) + seconds, str(seconds)) for seconds in (0, 600)]
        found.answers = [answer({"access_token": token}) for token in tokens]
        source = retriever(found.url, sasl_oauthbearer_scope="read write")
        # The first one has expired.
        assert await source.token(runtime) == tokens[0]
        both = await asyncio.gather(source.token(runtime), source.token(runtime))
        assert list(both) == [tokens[1]] * 2
        assert len(found.requests) == 2
        head, _, form = found.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /token?x=1 HTTP/1.1\r\n")
        identity = base64.b64encode(f"me:{SECRET}".encode())
        assert b"authorization: basic " + identity.lower() in head.lower()
        assert form == b"grant_type=client_credentials&scope=read+write"

    play(body, b"")


def test_the_lifetime_of_an_opaque_token() -> None:
    async def body(found: Provider, runtime: Runtime) -> None:
        source = retriever(found.url)
        assert [await source.token(runtime) for _ in range(3)] == ["abc"] * 3
        assert len(found.requests) == 1

    play(body, answer({"access_token": "abc", "expires_in": 600}))


def test_a_token_that_is_still_valid_is_used_if_the_provider_fails() -> None:
    async def body(found: Provider, runtime: Runtime) -> None:
        token = jwt(now_s(runtime) + 600)
        found.answers = [answer({"access_token": token}), answer(b"", "500 x")]
        source = retriever(found.url, sasl_login_retry_backoff_max_ms=0)
        assert await source.token(runtime) == token
        source._refresh_ms = 0
        assert await source.token(runtime) == token
        source._expires_ms = 0
        with pytest.raises(TokenNotRetrieved, match="500"):
            await source.token(runtime)

    play(body, b"")


def test_failures_of_the_provider_are_retried() -> None:
    async def body(found: Provider, runtime: Runtime) -> None:
        assert (
            await retriever(found.url, sasl_login_retry_backoff_max_ms=10_000).token(runtime)
            == "abc"
        )
        assert len(found.requests) == 3

    play(body, answer(b"", "503 x"), answer(b"", "429 x"), answer({"access_token": "abc"}))


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (answer({"error": SECRET}, "401 no"), "status of the response is 401"),
        (answer(SECRET.encode()), "the JSON is invalid"),
        (answer({"id_token": SECRET}), "no access_token"),
        (answer({"access_token": 7}), "no access_token"),
        (answer({"access_token": f"{SECRET} x"}), "no valid token"),
        (answer({"access_token": f"{SECRET}\x01auth=Bearer y"}), "no valid token"),
        (answer(b'{"access_token":"a","access_token":"b"}'), "the JSON is invalid"),
        (answer(b"x" * 200_000), "more than 131072 bytes"),
        (b"HTTP/1.1 302 x\r\nLocation: http://127.0.0.1/c4n4ry\r\n\r\n", "redirects"),
    ],
)
def test_responses_that_are_rejected(response: bytes, reason: str) -> None:
    async def body(found: Provider, runtime: Runtime) -> None:
        with pytest.raises(TokenNotRetrieved, match=reason) as raised:
            await retriever(found.url).token(runtime)
        assert SECRET not in str(raised.value)

    play(body, response)


def test_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    async def body(_: Provider, runtime: Runtime) -> None:
        source = retriever(f"file://{tmp_path}/token")
        with pytest.raises(TokenNotRetrieved, match="No such file"):
            await source.token(runtime)
        for text in ("abc", "a.b.c"):
            (tmp_path / "token").write_text(f"{text}\n")
            assert await source.token(runtime) == text
        for wrong in (b"", b"a b", b"\xff"):
            (tmp_path / "token").write_bytes(wrong)
            with pytest.raises(TokenNotRetrieved, match="no valid token"):
                await source.token(runtime)

    play(body, b"")


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"sasl_oauthbearer_token_endpoint_url": "ftp://h/c4n4ry"}, "must start with https:"),
        (
            {"sasl_oauthbearer_client_credentials_client_secret": None},
            r"requires sasl.oauthbearer.client.credentials.client.id and",
        ),
        ({"sasl_jaas_config": f"{SCRAM_MODULE} required x='c4n4ry';"}, "names the login module"),
        ({"sasl_login_callback_handler_class": "org.example.X"}, "classes are not loaded"),
        ({"sasl_login_refresh_window_factor": "0.4"}, "must be 0.5 to 1"),
        ({"sasl_oauthbearer_token_endpoint_url": None}, "requires oauth_token"),
    ],
)
def test_settings_that_are_rejected(others: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem) as raised:
        ClientSettings.read(
            {**USUAL, "sasl_oauthbearer_token_endpoint_url": "https://h/", **others}
        )
    assert SECRET not in str(raised.value)


def test_credentials_in_jaas_options() -> None:
    found = settings(
        "https://h/",
        sasl_oauthbearer_client_credentials_client_id=None,
        sasl_oauthbearer_client_credentials_client_secret=None,
        sasl_jaas_config=f'{OAUTHBEARER_MODULE} required clientId="x" clientSecret="{SECRET}"'
        ' scope="s" ssl.truststore.location="/ca";',
    )
    assert found.token_retriever is not None
    endpoint = found.token_retriever._endpoint
    assert (endpoint.client_id, endpoint.client_secret, endpoint.scope) == ("x", SECRET, "s")
    assert endpoint.trust == {"ssl.truststore.location": "/ca"}
    assert SECRET not in repr(endpoint)
