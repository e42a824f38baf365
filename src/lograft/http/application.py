"""What the HTTP listener serves: /metrics, /health/live, /health/ready and /v1/history.

Imported by a worker thread, since Starlette takes a tenth of a second to load.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Final, NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from lograft.http.access import MAY_DESCRIBE
from lograft.http.exposition import (
    OPENMETRICS,
    PROMETHEUS,
    is_openmetrics_accepted,
    write_families,
)
from lograft.http.history import POINTS, History
from lograft.model.health import NodeIdentity, UnreadyReason
from lograft.model.metrics import Families, Sample
from lograft.model.seams import Spawn

LOGGER: Final = logging.getLogger(__name__)

#: A status page must never come from a cache.
_NO_CACHE: Final = {"cache-control": "no-store"}


class ObservedNode(Protocol):
    """What the application reads of its node."""

    def collect_samples(self) -> Iterator[Sample]: ...

    @property
    def identity(self) -> NodeIdentity: ...

    def find_unready_reasons(self) -> list[UnreadyReason]:
        """Returns why the node cannot serve its clients; empty if it can."""


def make_application(node: ObservedNode, spawn: Spawn, history: History) -> Starlette:
    scrapes = Scrapes(node.collect_samples, spawn)
    #: Responses with history take turns: one slice of one of them is written at a time.
    turns = asyncio.Lock()

    async def metrics(request: Request) -> Response:
        is_openmetrics = is_openmetrics_accepted(request.headers.get("accept", ""))
        body = await scrapes.read(openmetrics=is_openmetrics)
        kind = OPENMETRICS if is_openmetrics else PROMETHEUS
        return Response(body, headers={**_NO_CACHE, "content-type": kind})

    async def live(_: Request) -> Response:
        # The response itself is the proof: the event loop of the node runs.
        return JSONResponse({"status": "live"}, headers=_NO_CACHE)

    async def ready(request: Request) -> Response:
        reasons = node.find_unready_reasons()
        page: dict[str, object] = {"status": "not ready" if reasons else "ready"}
        if request.scope.get(MAY_DESCRIBE, True):
            page["reasons"] = [{"code": cause.value, "message": text} for cause, text in reasons]
        status_code = 503 if reasons else 200
        return JSONResponse(page, status_code=status_code, headers=_NO_CACHE)

    async def read_history(request: Request) -> Response:
        try:
            query = HistoryQuery.parse(request.query_params, history.names)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400, headers=_NO_CACHE)
        slices = history.write_json(node.identity, points=query.points, names=query.names)
        body = _take_turns(slices, turns)
        return StreamingResponse(body, media_type="application/json", headers=_NO_CACHE)

    async def index(_: Request) -> Response:
        return PlainTextResponse("Lograft: /metrics, /health/live, /health/ready, /v1/history\n")

    return Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", metrics),
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/v1/history", read_history),
        ]
    )


class HistoryQuery(NamedTuple):
    points: int
    #: Empty for all series.
    names: frozenset[str]

    @classmethod
    def parse(cls, parameters: QueryParams, known: Collection[str]) -> "HistoryQuery":
        """Raises ValueError with a message for the client."""
        unknown = set(parameters) - {"points", "series"}
        if unknown:
            raise ValueError("the parameters of this path are points and series")
        text = parameters.get("points", str(POINTS))
        points = int(text) if re.fullmatch("[0-9]{1,4}", text) else 0
        if not 1 <= points <= POINTS:
            raise ValueError(f"points must be a number from 1 to {POINTS}")
        names = frozenset(filter(None, parameters.get("series", "").split(",")))
        if not names <= set(known):
            raise ValueError(f"series must be names of {', '.join(sorted(known))}")
        return cls(points, names)


async def _take_turns(slices: Iterator[str], turns: asyncio.Lock) -> AsyncIterator[bytes]:
    while True:
        async with turns:
            text = next(slices, None)
            await asyncio.sleep(0)
        if text is None:
            return
        yield text.encode()


class Scrapes:
    """Collections of metrics. All requests for one format that arrive while a collection runs get
    its result, so a thousand scrapes at once cost as much as one."""

    def __init__(self, collect_samples: Callable[[], Iterator[Sample]], spawn: Spawn) -> None:
        self._collect_samples = collect_samples
        self._spawn = spawn
        self._running: dict[bool, asyncio.Future[bytes]] = {}

    async def read(self, *, openmetrics: bool) -> bytes:
        result = self._running.get(openmetrics)
        if result is None:
            result = self._running[openmetrics] = asyncio.get_running_loop().create_future()
            self._spawn(self._collect(result, openmetrics=openmetrics), name="metrics scrape")
        # A client that disconnects must not cancel the collection of the others.
        return await asyncio.shield(result)

    async def _collect(self, result: asyncio.Future[bytes], *, openmetrics: bool) -> None:
        try:
            families = Families()
            for _ in families.gather(self._collect_samples()):
                await asyncio.sleep(0)
            slices = []
            for text in write_families(families, openmetrics=openmetrics):
                slices.append(text.encode())
                await asyncio.sleep(0)
            result.set_result(b"".join(slices))
        except Exception as error:
            LOGGER.exception("could not collect metrics")
            result.set_exception(error)
            # All clients may have disconnected.
            result.exception()
        finally:
            del self._running[openmetrics]
            result.cancel()
