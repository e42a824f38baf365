"""What the HTTP listener serves: /metrics, /health/live and /health/ready.

Imported by a worker thread, since Starlette takes a tenth of a second to load.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lograft.http.exposition import (
    OPENMETRICS,
    PROMETHEUS,
    is_openmetrics_accepted,
    write_families,
)
from lograft.model.health import UnreadyReason
from lograft.model.metrics import Families, Sample
from lograft.model.seams import Spawn

LOGGER: Final = logging.getLogger(__name__)

#: A status page must never come from a cache.
_NO_CACHE: Final = {"cache-control": "no-store"}


class ObservedNode(Protocol):
    """What the application reads of its node."""

    def collect_samples(self) -> Iterator[Sample]: ...

    def find_unready_reasons(self) -> list[UnreadyReason]:
        """Returns why the node cannot serve its clients; empty if it can."""


def make_application(node: ObservedNode, spawn: Spawn) -> Starlette:
    scrapes = Scrapes(node.collect_samples, spawn)

    async def metrics(request: Request) -> Response:
        is_openmetrics = is_openmetrics_accepted(request.headers.get("accept", ""))
        body = await scrapes.read(openmetrics=is_openmetrics)
        kind = OPENMETRICS if is_openmetrics else PROMETHEUS
        return Response(body, headers={**_NO_CACHE, "content-type": kind})

    async def live(_: Request) -> Response:
        # The response itself is the proof: the event loop of the node runs.
        return JSONResponse({"status": "live"}, headers=_NO_CACHE)

    async def ready(_: Request) -> Response:
        reasons = node.find_unready_reasons()
        status = "not ready" if reasons else "ready"
        return JSONResponse(
            {
                "status": status,
                "reasons": [{"code": cause.value, "message": text} for cause, text in reasons],
            },
            status_code=503 if reasons else 200,
            headers=_NO_CACHE,
        )

    async def index(_: Request) -> Response:
        return PlainTextResponse("Lograft: /metrics, /health/live, /health/ready\n")

    return Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", metrics),
            Route("/health/live", live),
            Route("/health/ready", ready),
        ]
    )


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
            # The clients may all be gone.
            result.exception()
        finally:
            del self._running[openmetrics]
            result.cancel()
