"""The connections of one client to the brokers of one cluster.

A broker is reached by its id once metadata has named it, before that by a bootstrap address. Each
(broker, lane) has one connection, made when it is needed; long polls have lanes of their own,
because a server answers the requests of a connection in order.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from lograft.client.backoff import backoff_ms
from lograft.client.bootstrap import Bootstrap
from lograft.client.broker_connection import BrokerConnection, Request
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import BrokerMissing, Closed, ConnectionFailed
from lograft.client.handshake import open_link
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Address, Runtime, Transport
from lograft.net.name_resolution import Resolver, SystemResolver
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)
#: A broker's id, or a bootstrap address that has no id yet.
Node: TypeAlias = int | Address

#: Connections that share a lane carry short requests only.
SHORT: Final = ""

CONNECTIONS: Final = Gauge("lograft_client_connections", "Open connections of the client.")
IN_FLIGHT: Final = Gauge(
    "lograft_client_requests_in_flight", "Requests of the client that are not answered yet."
)


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
        """`transport`: where it is not the runtime's own, as with TLS; `resolver`: finds canonical
        names, for client.dns.lookup."""
        self._runtime = runtime
        self._settings = settings
        self._transport = transport or runtime.transport
        self._bootstrap = Bootstrap(settings, resolver or SystemResolver())
        self._brokers: dict[int, Broker] = {}
        self._roads: dict[tuple[Node, str], _Road] = {}
        self._is_closed = False

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self._brokers

    def learn(self, brokers: Sequence[Broker]) -> None:
        """The brokers that there are now. Connections to others, and to old addresses, end."""
        self._brokers = {broker.id: broker for broker in brokers}
        for (node, lane), road in list(self._roads.items()):
            if isinstance(node, int) and self._address_of(node) != road.address:
                del self._roads[node, lane]
                road.close("the broker has gone or moved")

    def learn_broker(self, broker: Broker) -> None:
        """One more, named in passing."""
        others = [one for one in self._brokers.values() if one.id != broker.id]
        self.learn([*others, broker])

    def forget_brokers(self) -> None:
        """Begins again with the bootstrap addresses."""
        self._bootstrap.forget()
        self.learn([])

    async def ask(
        self,
        request: Request,
        answer: type[R],
        *,
        node: Node | None = None,
        lane: str = SHORT,
        timeout_ms: int | None = None,
        at_least: int = 0,
        at_most: int | None = None,
        lograft_only: bool = False,
    ) -> R:
        """Asks one broker, once; None: whichever has the least to do. `at_least`, `at_most`: the
        versions that can say what is meant; `lograft_only`: other brokers would misunderstand it.
        Raises ConnectionFailed, BrokerMissing, OutcomeUnknown
        or UnsupportedByBroker."""
        link = await (self.any_link() if node is None else self.link(node, lane))
        if lograft_only:
            link.check_lograft(answer.KEY)
        return await link.ask(
            request,
            answer,
            version=link.version_of(answer.KEY, at_least=at_least, at_most=at_most),
            timeout_ms=self._settings.request_timeout_ms if timeout_ms is None else timeout_ms,
        )

    async def link(self, node: Node, lane: str = SHORT) -> BrokerConnection:
        """The connection to a broker, once it may be used. Waits out the back-off after a failure
        and what the broker has asked us to wait, then tries once. Raises ConnectionFailed, or
        BrokerMissing for an id that the last metadata did not name."""
        if self._is_closed:
            raise Closed("the client is closed")
        address = self._address_of(node)
        if address is None:
            assert isinstance(node, int), "an address is where it says"
            raise BrokerMissing(node, self._brokers)
        road = self._roads.get((node, lane))
        if road is None or road.address != address:
            road = self._roads[node, lane] = _Road(
                self._runtime, self._transport, address, self._settings
            )
        return await road.link()

    def link_if_ready(self, node: Node, lane: str = SHORT) -> BrokerConnection | None:
        """The connection, if it can be used at once."""
        road = self._roads.get((node, lane))
        return None if road is None else road.link_if_ready()

    async def any_link(self) -> BrokerConnection:
        """To the broker that has the least to do; tries one after another."""
        failure: ConnectionFailed | BrokerMissing | None = None
        nodes: list[Node] = list(self._brokers) or list(await self._bootstrap.addresses())
        for node in self._by_load(nodes):
            try:
                return await self.link(node)
            except (ConnectionFailed, BrokerMissing) as error:
                if not error.is_retriable:
                    raise
                failure = error
        assert failure is not None
        raise failure

    def close(self) -> None:
        """Whoever waits for an answer gets OutcomeUnknown."""
        self._is_closed = True
        for road in self._roads.values():
            road.close("the client is closing")
        self._roads.clear()

    def collect_samples(self) -> Iterator[Sample]:
        links = [road.link_if_ready() for road in self._roads.values()]
        yield CONNECTIONS.sample(sum(link is not None for link in links))
        yield IN_FLIGHT.sample(sum(link.in_flight for link in links if link is not None))

    def _by_load(self, nodes: list[Node]) -> list[Node]:
        """Connected ones with the fewest requests in flight first, those that failed last."""
        random = self._runtime.randomness

        def order(node: Node) -> tuple[int, float]:
            road = self._roads.get((node, SHORT))
            if road is None:
                return 1 << 20, random.uniform(0, 1)
            link = road.link_if_ready()
            if link is not None:
                return link.in_flight, random.uniform(0, 1)
            return (1 << 21 if road.failures else 1 << 20), random.uniform(0, 1)

        return sorted(nodes, key=order)

    def _address_of(self, node: Node) -> Address | None:
        if isinstance(node, Address):
            return node
        broker = self._brokers.get(node)
        return None if broker is None else broker.address


class _Road:
    """To one address: the connection there, and how patient we are after failures."""

    def __init__(
        self, runtime: Runtime, transport: Transport, address: Address, settings: ClientSettings
    ) -> None:
        self._runtime = runtime
        self._transport = transport
        self.address = address
        self._settings = settings
        self._link: BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self.failures = 0
        self._next_attempt_ms = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def link_if_ready(self) -> BrokerConnection | None:
        link = self._link
        if link is None or link.is_closed:
            return None
        now_ms = self._runtime.clock.mono_ms()
        if link.throttled_until_ms > now_ms:
            return None
        if link.expires_at_ms is not None and link.expires_at_ms <= now_ms:
            return None
        return link

    async def link(self) -> BrokerConnection:
        link = self.link_if_ready()
        if link is not None:
            return link
        async with self._connecting:
            await self._wait_for_permission()
            return self.link_if_ready() or await self._connect()

    async def _wait_for_permission(self) -> None:
        """Until the broker's throttle and our own back-off are over."""
        now_ms = self._runtime.clock.mono_ms()
        link = self._link
        if link is not None and not link.is_closed:
            until_ms = link.throttled_until_ms
        else:
            until_ms = self._next_attempt_ms
        if until_ms > now_ms:
            await asyncio.sleep((until_ms - now_ms) / 1000)

    async def _connect(self) -> BrokerConnection:
        settings = self._settings
        randomness = self._runtime.randomness
        old = self._link
        try:
            link = await open_link(
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
        except ConnectionFailed:
            self.failures += 1
            self._next_attempt_ms = self._runtime.clock.mono_ms() + backoff_ms(
                settings.reconnect_backoff_ms,
                settings.reconnect_backoff_max_ms,
                self.failures,
                randomness,
            )
            raise
        if self._is_closed:
            link.close()
            raise ConnectionFailed(self.address, "connect", "the client is closing")
        self.failures = 0
        self._next_attempt_ms = 0
        self._link = link
        if old is not None and not old.is_closed and not old.in_flight:
            old.close("its login has run out")
        self._watch_idleness(link)
        return link

    def _watch_idleness(self, link: BrokerConnection) -> None:
        """Closes the connection when nothing has happened on it for connections.max.idle.ms."""
        idle_ms = self._settings.connections_max_idle_ms
        if idle_ms < 0 or link.is_closed:
            return
        rest_ms = link.last_used_ms + idle_ms - self._runtime.clock.mono_ms()
        if rest_ms <= 0 and not link.in_flight:
            link.close("idle")
            return
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(max(rest_ms, 1) / 1000, self._watch_idleness, link)

    def close(self, reason: str) -> None:
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._link is not None:
            self._link.close(reason)
