"""Every path of the HTTP listener needs permission, except those that are open."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import pytest
from starlette.routing import Route

from lograft.http.access import OPEN_PATHS, READY_PATH, AccessControl
from lograft.http.application import make_application
from lograft.http.history import History
from lograft.model.health import UnreadyCause, UnreadyReason
from lograft.model.http_access import Refusal
from lograft.model.seams import Address
from lograft.runtime.clock import SystemClock
from tests.support.scenarios import run_in_asyncio, scenario
from tests.unit.http.test_listener import FakeNode

DENIED = Refusal(HTTPStatus.FORBIDDEN, "denied")
UNKNOWN = Refusal(HTTPStatus.UNAUTHORIZED, "who?", ["Basic x", "Bearer y"], retry_after_seconds=7)


class StandInAccess:
    """Knows one password; `b"guest"` is authenticated, and not permitted."""

    def __init__(self) -> None:
        self.peers: list[Address] = []

    async def check(self, authorization: Sequence[bytes], peer: Address) -> Refusal | None:
        self.peers.append(peer)
        if list(authorization) == [b"right"]:
            return None
        return DENIED if list(authorization) == [b"guest"] else UNKNOWN


class World:
    def __init__(self) -> None:
        self.node = FakeNode()
        self.access = StandInAccess()

        def spawn(work: Any, *, name: str) -> Any:
            return asyncio.ensure_future(work)

        history = History(self.node.collect_samples, SystemClock())
        self.application = make_application(self.node, spawn, history)
        self.guarded = AccessControl(self.application, self.access)

    async def get(
        self, path: str, authorization: bytes | None = None, method: str = "GET"
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [] if authorization is None else [(b"authorization", authorization)],
            "client": ("10.0.0.1", 4711),
            "server": ("localhost", 80),
            "scheme": "http",
        }
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.guarded(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], list(sent[0]["headers"]), body


def run(body: Any) -> None:
    run_in_asyncio(lambda: body(World()))


@scenario(run)
async def test_every_route_is_closed_unless_it_is_listed(world: World, /) -> None:
    paths = [route.path for route in world.application.routes if isinstance(route, Route)]
    assert len(paths) > 4
    for path in (*paths, "/v1/added-later", "//metrics", "/health/live/", "/health/ready/"):
        status, _, body = await world.get(path)
        expected = 200 if path in OPEN_PATHS | {READY_PATH} else 401
        assert status == expected, path
        assert expected == 200 or body == b'{"error": "who?"}'
        assert (await world.get(path, b"guest"))[0] == (200 if expected == 200 else 403)
    assert set(world.access.peers) == {Address("10.0.0.1", 4711)}


@scenario(run)
async def test_a_refusal_has_the_headers_of_http(world: World, /) -> None:
    _, headers, body = await world.get("/metrics")
    challenges = [value for name, value in headers if name == b"www-authenticate"]
    assert challenges == [b"Basic x", b"Bearer y"]
    assert dict(headers)[b"retry-after"] == b"7"
    assert dict(headers)[b"content-length"] == str(len(body)).encode()
    assert world.node.collections == 0


@scenario(run)
async def test_with_permission_everything_is_served(world: World, /) -> None:
    for path in ("/", "/metrics", "/health/ready", "/v1/history"):
        assert (await world.get(path, b"right"))[0] == 200
    assert (await world.get("/nothing", b"right"))[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
@scenario(run)
async def test_other_methods_change_nothing(world: World, /, method: str) -> None:
    assert (await world.get("/metrics", method=method))[0] == 401
    assert (await world.get("/metrics", b"right", method=method))[0] == 405


@scenario(run)
async def test_reasons_need_permission_and_the_status_does_not(world: World, /) -> None:
    world.node.reasons = [UnreadyReason(UnreadyCause.FENCED, "the broker is fenced")]
    for authorization in (None, b"guest"):
        status, _, body = await world.get(READY_PATH, authorization)
        assert (status, body) == (503, b'{"status":"not ready"}')
    assert b"fenced" in (await world.get(READY_PATH, b"right"))[2]
    assert (await world.get(READY_PATH, b"wrong"))[0] == 401
