"""Requests to a server that may send anything: bounded in size and time, and never echoed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lograft.model.seams import Address
from lograft.net.http_requests import HttpFailed, HttpRequest, fetch
from lograft.net.sockets import SocketTransport
from tests.support.scenarios import run_in_asyncio

CANARY = "c4n4ry"
OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def server(answer: bytes, requests: list[bytes]) -> AsyncIterator[Address]:
    """Sends the answer to each request; with an empty answer, it waits."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        if answer:
            writer.write(answer)
            try:
                await writer.drain()
            except ConnectionError:
                pass
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address(*listening.sockets[0].getsockname()[:2])
    finally:
        for writer in writers:
            writer.close()
        listening.close()


def get(answer: bytes, *, bytes_max: int = 1000, timeout_ms: int = 20_000) -> bytes:
    bodies = []

    async def body() -> None:
        requests: list[bytes] = []
        async with server(answer, requests) as address:
            request = HttpRequest(address, "/keys?a=b")
            bodies.append(
                await fetch(SocketTransport(), request, bytes_max=bytes_max, timeout_ms=timeout_ms)
            )
        assert requests[0].startswith(b"GET /keys?a=b HTTP/1.1\r\n")
        assert f"Host: {address}\r\n".lower().encode() in requests[0].lower()

    run_in_asyncio(body)
    return bodies[0]


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 4\r\n\r\nkeys",
        OK + b"\r\nkeys",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nke\r\n2\r\nys\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nkeys",
    ],
)
def test_a_response(answer: bytes) -> None:
    assert get(answer) == b"keys"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 c4n4ry\r\n\r\nc4n4ry", "status of the response is 404"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/c4n4ry\r\n\r\n",
            "is 302: redirects are not followed",
        ),
        (OK + b"Content-Length: 9999\r\n\r\n" + b"x" * 9999, "more than 1000 bytes"),
        (OK + b"\r\n" + b"x" * 9999, "more than 1000 bytes"),
        (OK + b"X: " + b"c4n4ry" * 20_000, "not HTTP"),
        (b"c4n4ry\r\n\r\n", "not HTTP"),
        (OK + b"Content-Length: 9\r\n\r\nc4n4ry", "incomplete"),
    ],
)
def test_responses_that_are_rejected(answer: bytes, reason: str) -> None:
    with pytest.raises(HttpFailed, match=reason) as raised:
        get(answer)
    assert CANARY not in str(raised.value)


def test_a_server_that_does_not_answer() -> None:
    with pytest.raises(HttpFailed, match="did not answer within 100 ms"):
        get(b"", timeout_ms=100)


def test_a_server_that_is_not_there() -> None:
    async def body() -> None:
        async with server(b"", []) as address:
            pass
        with pytest.raises(HttpFailed, match="not reachable"):
            await fetch(
                SocketTransport(), HttpRequest(address, "/"), bytes_max=1, timeout_ms=20_000
            )

    run_in_asyncio(body)
