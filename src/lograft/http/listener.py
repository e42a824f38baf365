"""The HTTP listener of a node: binds the addresses and owns the connections."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from lograft.http.endpoints import HttpEndpoint
from lograft.http.history import History
from lograft.model.http_access import HttpAccess
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Address, Channel, Listener, Runtime, Task, Transport

if TYPE_CHECKING:
    from lograft.http.application import ObservedNode
    from lograft.http.connection import Application, HttpConnection

#: More are closed at once.
CONNECTIONS_MAX: Final = 256

CONNECTIONS: Final = Gauge("lograft_http_connections", "Open connections of the HTTP listener.")
ACCEPTED: Final = Counter(
    "lograft_http_connections_accepted_total", "Connections that the HTTP listener accepted."
)
REJECTED: Final = Counter(
    "lograft_http_connections_rejected_total",
    "Connections that the HTTP listener closed at once because too many were open.",
)

LOGGER: Final = logging.getLogger(__name__)


class HttpListener:
    def __init__(
        self,
        runtime: Runtime,
        node: "ObservedNode",
        *,
        transport_of: Callable[[HttpEndpoint], Transport],
        access: HttpAccess | None = None,
    ) -> None:
        """Without `access`, all clients may read everything."""
        self._runtime = runtime
        self._node = node
        self._transport_of = transport_of
        self._access = access
        self._listeners: list[Listener] = []
        self._connections: dict[HttpConnection, None] = {}
        self._application: Application | None = None
        self._history = History(node.collect_samples, runtime.clock)
        self._history_task: Task | None = None
        self._loading: asyncio.Lock = asyncio.Lock()
        self._accepted = 0
        self._rejected = 0
        #: What clients open, with the ports that were bound.
        self.urls: list[str] = []

    async def open(self, endpoints: tuple[HttpEndpoint, ...]) -> None:
        """Raises OSError if an address cannot be bound."""
        if endpoints:
            await self._runtime.workers.run(_import_connection)
            self._history_task = self._runtime.spawn(self._history.run(), name="metrics history")
        for endpoint in endpoints:
            listener = await self._transport_of(endpoint).listen(
                endpoint.address, partial(self._on_channel, endpoint)
            )
            self._listeners.append(listener)
            self.urls.append(endpoint.url(Address(endpoint.address.host, listener.address.port)))

    def stop(self) -> None:
        if self._history_task is not None:
            self._history_task.cancel()
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.abort()

    def collect_samples(self) -> Iterator[Sample]:
        yield CONNECTIONS.sample(len(self._connections))
        yield ACCEPTED.sample(self._accepted)
        yield REJECTED.sample(self._rejected)

    def _on_channel(self, endpoint: HttpEndpoint, channel: Channel) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._rejected += 1
            channel.abort()
            return
        from lograft.http.connection import HttpConnection

        self._accepted += 1
        connection = HttpConnection(
            channel,
            self._load_application,
            spawn=self._runtime.spawn,
            scheme="https" if endpoint.uses_tls else "http",
            on_ended=self._on_ended,
        )
        self._connections[connection] = None
        connection.start()

    def _on_ended(self, connection: "HttpConnection") -> None:
        self._connections.pop(connection, None)

    async def _load_application(self) -> "Application":
        async with self._loading:
            if self._application is None:
                await self._runtime.workers.run(_import_application)
                from lograft.http.access import AccessControl
                from lograft.http.application import make_application

                application = make_application(self._node, self._runtime.spawn, self._history)
                self._application = application
                if self._access is not None:
                    self._application = AccessControl(application, self._access)
        return self._application


def _import_connection() -> None:
    """A worker's job."""
    import lograft.http.connection  # noqa: F401


def _import_application() -> None:
    """A worker's job."""
    import lograft.http.application  # noqa: F401
