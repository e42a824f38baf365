"""Accepts the connections of one listener, within limits, and closes idle ones.

Idle connections are found by a periodic sweep over all of them, not by a timer for each: a timer
per request would cost more than the other bookkeeping of the request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lograft.model.exchange import HandlerFactory
from lograft.model.metrics import LISTENER, Counter, Gauge, Sample
from lograft.model.seams import Address, Channel, Listener, Runtime, Task, Transport
from lograft.net.closed_connections import IDLE, ClosedConnections
from lograft.net.connection import Connection, FlowLimits
from lograft.net.connection_limits import UNTIL_RELEASED, ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.repeated_warnings import RepeatedWarnings

_SWEEPS_PER_IDLE_TIME: Final = 4
_SWEEP_MS_MAX: Final = 30_000
#: Connections that may wait until the node is ready; further ones are rejected.
_EARLY_MAX: Final = 1024
#: Connections above the quota of their address that wait to be closed; further ones are closed at
#: once.
_DELAYED_MAX: Final = 1024

CONNECTIONS: Final = Gauge(
    "lograft_connections", "Open connections of clients and nodes.", LISTENER
)
ACCEPTED: Final = Counter(
    "lograft_connections_accepted_total", "Connections that were accepted.", LISTENER
)
REJECTED: Final = Counter(
    "lograft_connections_rejected_total",
    "Connections that were closed immediately because of a limit or because the node was starting.",
    LISTENER,
)
DELAYED: Final = Counter(
    "lograft_connections_delayed_total",
    "Connections that were closed after a delay, because their address exceeded"
    " connection_creation_rate.",
    LISTENER,
)

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    #: connections.max.idle.ms
    idle_ms_max: int = 600_000
    flow: FlowLimits = field(default_factory=FlowLimits)


class Server:
    """One listener and its connections."""

    __slots__ = (
        "_accept_timer",
        "_accepted",
        "_bad_connections",
        "_budget",
        "_closed",
        "_connections",
        "_delayed",
        "_delays",
        "_early",
        "_empty",
        "_handlers",
        "_limits",
        "_listener",
        "_name",
        "_quota",
        "_rejected",
        "_rejections",
        "_runtime",
        "_sweep",
        "_transport",
        "_waiting",
    )

    def __init__(
        self,
        name: str,
        handlers: HandlerFactory,
        *,
        runtime: Runtime,
        quota: ConnectionQuota,
        budget: FrameBudget,
        limits: ServerLimits | None = None,
        transport: Transport | None = None,
    ) -> None:
        """`quota` and `budget` are shared by all listeners of a role; `transport` defaults to the
        runtime's transport, and is set for TLS listeners."""
        self._name = name
        self._handlers = handlers
        self._runtime = runtime
        self._transport = transport or runtime.transport
        self._quota = quota
        self._budget = budget
        self._limits = limits or ServerLimits()
        self._listener: Listener | None = None
        #: In the order of arrival: a set would close them in the order of their addresses.
        self._connections: dict[Connection, None] = {}
        #: Accepted before the node was ready: nothing is read from them yet. None once it is.
        self._early: list[Channel] | None = []
        #: Accepted, but beyond a connection limit: the listener is paused.
        self._waiting: deque[Channel] = deque()
        self._accept_timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._sweep: Task | None = None
        self._accepted = 0
        self._rejected = 0
        self._delays = 0
        #: Rejected connections that are closed later, and the timers that do it.
        self._delayed: dict[Channel, asyncio.TimerHandle] = {}
        self._closed = ClosedConnections()
        self._rejections = RepeatedWarnings(LOGGER, runtime.clock, lines_max=1)
        self._bad_connections = RepeatedWarnings(
            logging.getLogger(Connection.__module__), runtime.clock
        )

    @property
    def address(self) -> Address:
        assert self._listener is not None, "not started"
        return self._listener.address

    async def start(self, address: Address) -> None:
        """Binds the address; connections are accepted but wait until `serve` is called."""
        self._listener = await self._transport.listen(address, self._on_channel)
        self._quota.add(self._name, self)
        self._sweep = self._runtime.spawn(self._close_idle(), name=f"idle-sweep-{self._name}")

    def serve(self) -> None:
        """Starts handling requests: the node is ready."""
        early, self._early = self._early or [], None
        for channel in early:
            self._on_channel(channel)

    async def stop(self, *, grace_ms: int = 1_000) -> None:
        """Stops accepting and reading, sends the responses that are ready, then closes."""
        if self._listener is not None:
            self._listener.close()
        self._quota.remove(self._name)
        if self._sweep is not None:
            self._sweep.cancel()
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        for channel in (*(self._early or ()), *self._waiting):
            channel.abort()
        for channel in list(self._delayed):
            self._end_delay(channel)
        self._waiting.clear()
        for end in (Connection.close, Connection.abort):
            for connection in list(self._connections):
                end(connection)
            if await self._wait_all_closed(grace_ms):
                return

    async def _wait_all_closed(self, wait_ms: int) -> bool:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def collect_samples(self) -> Iterator[Sample]:
        yield CONNECTIONS.sample(len(self._connections), self._name)
        yield ACCEPTED.sample(self._accepted, self._name)
        yield REJECTED.sample(self._rejected, self._name)
        yield DELAYED.sample(self._delays, self._name)
        yield from self._closed.collect_samples(self._name)

    def _on_channel(self, channel: Channel) -> None:
        if self._early is not None:
            if len(self._early) < _EARLY_MAX:
                self._early.append(channel)
            else:
                self._reject(channel, "the node is still starting")
        elif len(self._waiting) < _EARLY_MAX:
            self._waiting.append(channel)
            self.accept_waiting()
        else:
            self._reject(channel, "too many connections are waiting for others to close")

    def accept_waiting(self) -> None:
        """Accepts as many connections as the limits allow, and pauses the listener at a limit."""
        if self._early is not None or self._listener is None:
            return
        if self._accept_timer is not None:
            self._accept_timer.cancel()
            self._accept_timer = None
        while self._waiting:
            wait_ms = self._quota.wait_ms(self._name, self._runtime.clock.mono_ms())
            if wait_ms:
                self._listener.pause_accepting()
                if wait_ms != UNTIL_RELEASED:
                    self._accept_timer = asyncio.get_running_loop().call_later(
                        wait_ms / 1000, self.accept_waiting
                    )
                return
            self._accept(self._waiting.popleft())
        self._listener.resume_accepting()

    def open_connections(self) -> Iterable[Connection]:
        return [connection for connection in self._connections if not connection.is_closing]

    def _accept(self, channel: Channel) -> None:
        now_ms = self._runtime.clock.mono_ms()
        throttle_ms = self._quota.throttle_ms(channel.peer.host, now_ms)
        if throttle_ms:
            self._delay(channel, throttle_ms)
            return
        rejection = self._quota.take(self._name, channel.peer.host, now_ms)
        if rejection is not None:
            self._reject(channel, rejection)
            return
        self._accepted += 1
        connection = Connection(
            channel,
            self._handlers(channel),
            name=self._name,
            clock=self._runtime.clock,
            spawn=self._runtime.spawn,
            limits=self._limits.flow,
            budget=self._budget,
            on_ended=self._on_ended,
            warnings=self._bad_connections,
            closed=self._closed,
        )
        self._connections[connection] = None
        connection.start()

    def _delay(self, channel: Channel, throttle_ms: int) -> None:
        """Closes the connection later, so that the client does not try again at once (KIP-612).
        Nothing is read from it."""
        self._delays += 1
        if len(self._delayed) >= _DELAYED_MAX:
            channel.abort()
            return
        self._delayed[channel] = asyncio.get_running_loop().call_later(
            throttle_ms / 1000, self._end_delay, channel
        )

    def _end_delay(self, channel: Channel) -> None:
        self._delayed.pop(channel).cancel()
        channel.abort()

    def _reject(self, channel: Channel, reason: str) -> None:
        self._rejected += 1
        channel.abort()
        self._rejections.warn("%s: rejected a connection: %s", self._name, reason)

    def _on_ended(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._quota.release(self._name, connection.channel.peer.host)
        if not self._connections:
            self._empty.set()

    async def _close_idle(self) -> None:
        idle_ms_max = self._limits.idle_ms_max
        if idle_ms_max <= 0:
            return
        pause_ms = min(max(idle_ms_max // _SWEEPS_PER_IDLE_TIME, 1), _SWEEP_MS_MAX)
        while True:
            await asyncio.sleep(pause_ms / 1000)
            now_ms = self._runtime.clock.mono_ms()
            idle = [
                connection
                for connection in self._connections
                if connection.sweep(now_ms, idle_ms_max=idle_ms_max)
            ]
            for connection in idle:
                LOGGER.debug(
                    "%s: closed idle connection of %s", self._name, connection.channel.peer
                )
                self._closed.add(IDLE)
                connection.close()
