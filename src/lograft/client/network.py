"""The connections of one client to the brokers of one cluster.

A broker is identified by its id once metadata contains it, before that by a bootstrap address.
There is one connection for each broker and lane, opened when it is needed. Long polls have their
own lanes, because a broker responds to the requests of a connection in order.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from lograft.client.authentication import authenticate, can_renew
from lograft.client.backoff import backoff_ms
from lograft.client.bootstrap import Bootstrap
from lograft.client.broker_connection import BrokerConnection, Request
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import (
    AuthenticationFailed,
    BrokerMissing,
    Closed,
    ConnectionFailed,
    OutcomeUnknown,
)
from lograft.client.handshake import open_connection
from lograft.client.network_metrics import NetworkMetrics
from lograft.model.seams import Address, Runtime, Transport
from lograft.net.name_resolution import Resolver, SystemResolver
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)
#: A broker's id, or a bootstrap address whose id is not known yet.
Node: TypeAlias = int | Address

#: The lane for requests whose responses do not wait.
DEFAULT_LANE: Final = ""


class Broker(NamedTuple):
    id: int
    address: Address
    rack: str | None = None


class Network:
    def __init__(
        self,
        runtime: Runtime,
        settings: ClientSettings,
        *,
        transport: Transport | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        """`transport`: replaces that of the runtime, for TLS; `resolver`: finds canonical names,
        for client.dns.lookup."""
        self._runtime = runtime
        self._settings = settings
        self._transport = transport or runtime.transport
        self._bootstrap = Bootstrap(settings, resolver or SystemResolver())
        self._brokers: dict[int, Broker] = {}
        self._endpoints: dict[tuple[Node, str], _Endpoint] = {}
        self._is_closed = False
        self.metrics = NetworkMetrics()
        #: Completes when the next connection is opened.
        self._opened: asyncio.Future[None] | None = None

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self._brokers

    def update_brokers(self, brokers: Sequence[Broker]) -> None:
        """Replaces the brokers of the cluster. Closes connections to removed brokers and to
        addresses that have changed."""
        self._brokers = {broker.id: broker for broker in brokers}
        for (node, lane), endpoint in list(self._endpoints.items()):
            if isinstance(node, int) and self._address_of(node) != endpoint.address:
                del self._endpoints[node, lane]
                endpoint.close("the broker was removed or has a new address")
        self.metrics.keep_nodes(self._brokers.__contains__)

    def update_broker(self, broker: Broker) -> None:
        """Adds or replaces one broker, from a response other than Metadata."""
        others = [known for known in self._brokers.values() if known.id != broker.id]
        self.update_brokers([*others, broker])

    def rebootstrap(self) -> None:
        """Forgets all brokers: the next connection uses a bootstrap address."""
        self._bootstrap.forget()
        self.update_brokers([])

    async def request(
        self,
        request: Request,
        response_type: type[R],
        *,
        node: Node | None = None,
        lane: str = DEFAULT_LANE,
        timeout_ms: int | None = None,
        at_least: int = 0,
        at_most: int | None = None,
        lograft_only: bool = False,
    ) -> R:
        """Sends a request once and returns its response. `node`: None for the least loaded broker.
        `at_least`, `at_most`: versions that can express the request; `lograft_only`: other brokers
        would misunderstand it. Raises ConnectionFailed, BrokerMissing, OutcomeUnknown or
        UnsupportedByBroker."""
        connection = await (self.connect_any() if node is None else self.connect(node, lane))
        if lograft_only:
            connection.check_lograft(response_type.KEY)
        return await connection.request(
            request,
            response_type,
            version=connection.version_of(response_type.KEY, at_least=at_least, at_most=at_most),
            timeout_ms=self._settings.request_timeout_ms if timeout_ms is None else timeout_ms,
        )

    async def connect(self, node: Node, lane: str = DEFAULT_LANE) -> BrokerConnection:
        """Returns the connection to a broker, opening it if needed. Waits until the back-off after
        a failure and the broker's throttle time are over, then tries once. Raises ConnectionFailed,
        or BrokerMissing for an id that is not in the metadata."""
        if self._is_closed:
            raise Closed("the client is closed")
        address = self._address_of(node)
        if address is None:
            assert isinstance(node, int), "an address needs no metadata"
            raise BrokerMissing(node, self._brokers)
        endpoint = self._endpoints.get((node, lane))
        if endpoint is None or endpoint.address != address:
            endpoint = self._endpoints[node, lane] = _Endpoint(
                self._runtime,
                self._transport,
                address,
                self._settings,
                self.metrics,
                partial(self._on_connection, node),
            )
        return await endpoint.connect()

    def ready_connection(self, node: Node, lane: str = DEFAULT_LANE) -> BrokerConnection | None:
        """Returns the connection to a broker if a request can be sent immediately."""
        endpoint = self._endpoints.get((node, lane))
        return None if endpoint is None else endpoint.ready_connection()

    def ready_connections(self) -> Iterator[BrokerConnection]:
        """Yields the connections without long polls to which a request can be sent immediately."""
        for (_, lane), endpoint in self._endpoints.items():
            connection = endpoint.ready_connection() if lane == DEFAULT_LANE else None
            if connection is not None:
                yield connection

    def wait_opened(self) -> "asyncio.Future[None]":
        """Returns a future that completes when the next connection is opened."""
        if self._opened is None or self._opened.done():
            self._opened = asyncio.get_running_loop().create_future()
        return self._opened

    async def connect_any(self) -> BrokerConnection:
        """Returns a connection to the least loaded broker that can be reached."""
        failure: ConnectionFailed | BrokerMissing | None = None
        nodes: list[Node] = list(self._brokers) or list(await self._bootstrap.addresses())
        for node in self._sort_by_load(nodes):
            try:
                return await self.connect(node)
            except (ConnectionFailed, BrokerMissing) as error:
                if not error.is_retriable:
                    raise
                failure = error
        assert failure is not None
        raise failure

    def close(self) -> None:
        """Pending requests fail with OutcomeUnknown."""
        self._is_closed = True
        for endpoint in self._endpoints.values():
            endpoint.close("the client is closing")
        self._endpoints.clear()

    def _on_connection(self, node: Node, connection: BrokerConnection) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and not opened.done():
            opened.set_result(None)
        self.metrics.on_connection(connection, node, is_authenticated=self._settings.uses_sasl)

    def _sort_by_load(self, nodes: list[Node]) -> list[Node]:
        """Connected brokers with the fewest requests in flight first, those that failed last."""
        random = self._runtime.randomness

        def order(node: Node) -> tuple[int, float]:
            endpoint = self._endpoints.get((node, DEFAULT_LANE))
            if endpoint is None:
                return 1 << 20, random.uniform(0, 1)
            connection = endpoint.ready_connection()
            if connection is not None:
                return connection.in_flight, random.uniform(0, 1)
            return (1 << 21 if endpoint.failures else 1 << 20), random.uniform(0, 1)

        return sorted(nodes, key=order)

    def _address_of(self, node: Node) -> Address | None:
        if isinstance(node, Address):
            return node
        broker = self._brokers.get(node)
        return None if broker is None else broker.address


class _Endpoint:
    """The connection to one address, and the back-off after failures."""

    def __init__(
        self,
        runtime: Runtime,
        transport: Transport,
        address: Address,
        settings: ClientSettings,
        metrics: NetworkMetrics,
        on_connection: Callable[[BrokerConnection], None],
    ) -> None:
        """`on_connection`: called with each connection that is ready for requests."""
        self._runtime = runtime
        self._transport = transport
        self.address = address
        self._settings = settings
        self._metrics = metrics
        self._on_connection = on_connection
        self._connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self.failures = 0
        self._next_attempt_ms = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def ready_connection(self) -> BrokerConnection | None:
        connection = self._connection
        if connection is None or connection.is_closed:
            return None
        now_ms = self._runtime.clock.mono_ms()
        if connection.throttled_until_ms > now_ms:
            return None
        if connection.expires_at_ms is not None and connection.expires_at_ms <= now_ms:
            return None
        return connection

    async def connect(self) -> BrokerConnection:
        connection = self.ready_connection()
        if connection is not None:
            return connection
        async with self._connecting:
            await self._wait_until_allowed()
            return self.ready_connection() or await self._renew() or await self._open()

    async def _wait_until_allowed(self) -> None:
        """Waits until the broker's throttle time or the back-off is over."""
        now_ms = self._runtime.clock.mono_ms()
        connection = self._connection
        if connection is not None and not connection.is_closed:
            until_ms = connection.throttled_until_ms
        else:
            until_ms = self._next_attempt_ms
        if until_ms > now_ms:
            await asyncio.sleep((until_ms - now_ms) / 1000)

    async def _renew(self) -> BrokerConnection | None:
        """Renews the session of the open connection and returns the connection; None if a new one
        is needed. Until then, no other request is sent: the connection is not ready."""
        connection = self._connection
        if connection is None or not can_renew(connection, self._runtime.clock.mono_ms()):
            return None
        started_ms = self._runtime.clock.mono_ms()
        try:
            await authenticate(connection, self._settings, self._runtime)
        except OutcomeUnknown:
            return None  # the connection is closed
        except BaseException as error:
            connection.close("its session was not renewed")
            if isinstance(error, AuthenticationFailed):
                self._metrics.reauthentication_failures += 1
                self._on_failure()
            raise
        self._metrics.reauthentications.record(self._runtime.clock.mono_ms() - started_ms)
        return connection

    async def _open(self) -> BrokerConnection:
        settings = self._settings
        randomness = self._runtime.randomness
        old = self._connection
        try:
            connection = await open_connection(
                self._runtime,
                self._transport,
                self.address,
                settings,
                setup_timeout_ms=backoff_ms(
                    settings.socket_connection_setup_timeout_ms,
                    settings.socket_connection_setup_timeout_max_ms,
                    self.failures + 1,
                    randomness,
                ),
            )
        except ConnectionFailed as error:
            self._metrics.authentication_failures += isinstance(error, AuthenticationFailed)
            self._on_failure()
            raise
        if self._is_closed:
            connection.close()
            raise ConnectionFailed(self.address, "connect", "the client is closing")
        self.failures = 0
        self._next_attempt_ms = 0
        self._connection = connection
        self._on_connection(connection)
        if old is not None and not old.is_closed and not old.in_flight:
            old.close("its authentication expired")
        self._close_when_idle(connection)
        return connection

    def _on_failure(self) -> None:
        """The next attempt waits for the back-off."""
        settings = self._settings
        self.failures += 1
        self._next_attempt_ms = self._runtime.clock.mono_ms() + backoff_ms(
            settings.reconnect_backoff_ms,
            settings.reconnect_backoff_max_ms,
            self.failures,
            self._runtime.randomness,
        )

    def _close_when_idle(self, connection: BrokerConnection) -> None:
        """Closes the connection if it has not been used for connections.max.idle.ms."""
        idle_ms = self._settings.connections_max_idle_ms
        if idle_ms < 0 or connection.is_closed:
            return
        rest_ms = connection.last_used_ms + idle_ms - self._runtime.clock.mono_ms()
        if rest_ms <= 0 and not connection.in_flight:
            connection.close("idle")
            return
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(
            max(rest_ms, 1) / 1000, self._close_when_idle, connection
        )

    def close(self, reason: str) -> None:
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._connection is not None:
            self._connection.close(reason)
