"""The HTTP listener over real sockets: requests, hostile clients, and many scrapes at once."""

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from lograft.http import connection as http_connection
from lograft.http import listener as http_listener
from lograft.http.endpoints import HttpEndpoint
from lograft.http.listener import ACCEPTED, CONNECTIONS, REJECTED, HttpListener
from lograft.model.health import NodeIdentity, UnreadyCause, UnreadyReason
from lograft.model.metrics import Gauge, Label, Sample, value_of
from lograft.model.seams import Address
from lograft.net.sockets import SocketTransport
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers
from tests.support.scenarios import run_in_asyncio, scenario
from tests.support.waiting import wait_until_async

SERIES = Gauge("lograft_test_series", "A gauge of many series.", Label("number", 100_000))


class FakeNode:
    def __init__(self) -> None:
        self.series = 3
        self.collections = 0
        self.reasons: list[UnreadyReason] = []
        self.failure: Exception | None = None

    def collect_samples(self) -> Iterator[Sample]:
        self.collections += 1
        if self.failure is not None:
            raise self.failure
        for number in range(self.series):
            yield SERIES.sample(number, str(number))

    @property
    def identity(self) -> NodeIdentity:
        return NodeIdentity(7, "cluster")

    def find_unready_reasons(self) -> list[UnreadyReason]:
        return self.reasons


class World:
    def __init__(self, node: FakeNode, listener: HttpListener) -> None:
        self.node = node
        self.listener = listener
        (self.url,) = listener.urls
        self.port = urlsplit(self.url).port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, data: bytes) -> bytes:
        """Sends these bytes and returns everything received until the server closes the
        connection."""
        reader, writer = await self.connect()
        writer.write(data)
        response = b""
        try:
            while part := await reader.read(1 << 16):
                response += part
        except ConnectionResetError:
            pass  # the server closed the connection with unread bytes
        writer.close()
        return response

    async def get(
        self, path: str, *, method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        def call() -> tuple[int, dict[str, str], bytes]:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                client.request(method, path, headers=headers)
                response = client.getresponse()
                found = {name.lower(): value for name, value in response.getheaders()}
                return response.status, found, response.read()
            finally:
                client.close()

        return await asyncio.to_thread(call)

    async def wait_closed(self) -> None:
        while value_of(self.listener, CONNECTIONS):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening() -> AsyncIterator[World]:
    workers = ThreadWorkers()
    node = FakeNode()
    async with asyncio.TaskGroup() as group:
        runtime = system_runtime(transport=SocketTransport(), workers=workers, task_group=group)
        listener = HttpListener(runtime, node, transport_of=lambda _: runtime.transport)
        await listener.open((HttpEndpoint(Address("127.0.0.1", 0), uses_tls=False),))
        try:
            yield World(node, listener)
        finally:
            listener.stop()
    workers.close()


def run(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with listening() as world:
            await body(world)

    run_in_asyncio(main)


@scenario(run)
async def test_metrics_in_the_format_that_the_client_accepts(world: World, /) -> None:
    status, headers, body = await world.get("/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert body.endswith(b'lograft_test_series{number="2"} 2\n')
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1"
    status, headers, body = await world.get("/metrics", Accept=accept)
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


@scenario(run)
async def test_readiness_names_its_reasons(world: World, /) -> None:
    assert (await world.get("/health/ready"))[0] == 200
    world.node.reasons = [UnreadyReason(UnreadyCause.FENCED, "the broker is fenced")]
    status, _, body = await world.get("/health/ready")
    assert status == 503
    assert json.loads(body) == {
        "status": "not ready",
        "reasons": [{"code": "fenced", "message": "the broker is fenced"}],
    }
    assert (await world.get("/health/live"))[0] == 200


@scenario(run)
async def test_history_is_json_of_the_series_that_are_asked_for(world: World, /) -> None:
    status, headers, body = await world.get("/v1/history?points=5&series=requests,cpu")
    assert (status, headers["content-type"]) == (200, "application/json")
    page = json.loads(body)
    assert (page["node_id"], page["cluster_id"], page["points"]) == (7, "cluster", 0)
    assert [series["name"] for series in page["series"]] == ["requests", "cpu"]


@pytest.mark.parametrize(
    "query", ["points=0", "points=721", "points=x", "points=٣", "series=none", "since=5"]
)
@scenario(run)
async def test_a_bad_query_for_history_is_rejected(world: World, /, query: str) -> None:
    status, _, body = await world.get(f"/v1/history?{quote(query, safe='=')}")
    assert status == 400
    assert json.loads(body)["error"]


@scenario(run)
async def test_responses_to_head_have_no_body(world: World, /) -> None:
    status, headers, body = await world.get("/metrics", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


@scenario(run)
async def test_requests_of_one_connection_are_served_in_order(world: World, /) -> None:
    requests = [
        b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    response = await world.exchange(b"".join([*requests, last]))
    statuses = re.findall(rb"HTTP/1\.1 [^\r]*", response)
    assert statuses == [b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 200 OK"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (32 << 10), b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\nabc", b"405"),
    ],
)
@scenario(run)
async def test_bad_requests_are_rejected_and_disconnected(
    world: World, /, data: bytes, status: bytes
) -> None:
    response = await world.exchange(data)
    assert response.startswith(b"HTTP/1.1 " + status), response
    await world.wait_closed()


@scenario(run)
async def test_a_failed_collection_is_a_server_error(world: World, /) -> None:
    world.node.failure = RuntimeError("broken")
    response = await world.exchange(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 500 Internal Server Error")
    world.node.failure = None
    assert (await world.get("/metrics"))[0] == 200


@scenario(run)
async def test_scrapes_at_the_same_time_share_a_collection(world: World, /) -> None:
    world.node.series = 20_000
    await world.get("/health/live")
    connected = [await world.connect() for _ in range(50)]
    for _, writer in connected:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    bodies = {await reader.read() for reader, _ in connected}
    for _, writer in connected:
        writer.close()
    assert all(body.count(b"lograft_test_series{") == 20_000 for body in bodies)
    assert world.node.collections < 10


@scenario(run)
async def test_a_thousand_scrapes_at_once_are_bounded(world: World, /) -> None:
    """Those above the limit of connections are closed, and all others share few collections."""
    world.node.series = 500
    await world.get("/health/live")

    async def scrape() -> bytes:
        try:
            return await world.exchange(
                b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            )
        except (ConnectionResetError, BrokenPipeError):
            return b""

    scrapes = [asyncio.ensure_future(scrape()) for _ in range(1_000)]
    most = 0
    while not all(each.done() for each in scrapes):
        most = max(most, int(value_of(world.listener, CONNECTIONS)))
        await asyncio.sleep(0.01)
    assert most <= http_listener.CONNECTIONS_MAX
    bodies = [each.result() for each in scrapes if each.result()]
    assert bodies
    assert all(body.count(b"lograft_test_series{") == 500 for body in bodies)
    assert world.node.collections < 100
    await world.wait_closed()
    assert (await world.get("/metrics"))[0] == 200


@scenario(run)
async def test_a_client_that_does_not_read_is_disconnected(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "SEND_TIMEOUT_S", 0.2)
    world.node.series = 100_000
    reader, writer = await world.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
    await wait_until_async(lambda: value_of(world.listener, CONNECTIONS))
    await world.wait_closed()
    assert (await world.get("/health/live"))[0] == 200
    writer.close()
    assert reader is not None


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n"])
@scenario(run)
async def test_a_client_that_does_not_complete_a_request_is_disconnected(
    world: World, /, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_TIMEOUT_S", 0.2)
    assert await world.exchange(data) == b""


@scenario(run)
async def test_connections_above_the_limit_are_closed(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "CONNECTIONS_MAX", 2)
    held = [await world.connect() for _ in range(2)]
    while value_of(world.listener, ACCEPTED) < 2:
        await asyncio.sleep(0.01)
    assert await world.exchange(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == b""
    assert value_of(world.listener, REJECTED) == 1
    for _, writer in held:
        writer.close()
    await world.wait_closed()
    assert (await world.get("/health/live"))[0] == 200
