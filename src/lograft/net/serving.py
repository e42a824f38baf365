"""Accepts the connections of one listener, within limits, and ends the idle ones.

Idle connections are found by one sweep over all of them, not by a timer each: a timer per request
would cost more than the request's own bookkeeping.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lograft.model.exchange import HandlerFactory
from lograft.model.seams import Address, Channel, Listener, Runtime, Task, Transport
from lograft.net.connection import Connection, FlowLimits
from lograft.net.frame_memory import FrameBudget

_SWEEPS_PER_IDLE_TIME: Final = 4
_SWEEP_MS_MAX: Final = 30_000
#: Connections that may wait for the node to become ready; more are refused.
_EARLY_MAX: Final = 1024
#: At most one line in this time says that connections are refused.
_REFUSAL_LOG_MS: Final = 5_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    #: connections.max.idle.ms
    idle_ms_max: int = 600_000
    flow: FlowLimits = field(default_factory=FlowLimits)


class ConnectionQuota:
    """Counts the connections of all listeners: max.connections, max.connections.per.ip and its
    overrides. A limit may be changed at any time; it holds for new connections."""

    __slots__ = ("_per_ip", "_total", "connections_max", "overrides", "per_ip_max")

    def __init__(
        self,
        *,
        connections_max: int = 2**31 - 1,
        per_ip_max: int = 2**31 - 1,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        self.connections_max = connections_max
        self.per_ip_max = per_ip_max
        self.overrides: Mapping[str, int] = overrides or {}
        self._total = 0
        self._per_ip: dict[str, int] = {}

    @property
    def total(self) -> int:
        return self._total

    def take(self, host: str) -> str | None:
        """None, or why there is no room."""
        held = self._per_ip.get(host, 0)
        if self._total >= self.connections_max:
            return f"max.connections={self.connections_max} is reached"
        limit = self.overrides.get(host, self.per_ip_max)
        if held >= limit:
            return f"max.connections.per.ip={limit} is reached for {host}"
        self._total += 1
        self._per_ip[host] = held + 1
        return None

    def give_back(self, host: str) -> None:
        self._total -= 1
        held = self._per_ip[host] - 1
        if held:
            self._per_ip[host] = held
        else:
            del self._per_ip[host]


class Server:
    """One listener and its connections."""

    __slots__ = (
        "_accepted",
        "_budget",
        "_connections",
        "_early",
        "_empty",
        "_handlers",
        "_limits",
        "_listener",
        "_name",
        "_quota",
        "_refusal_logged_ms",
        "_refused",
        "_runtime",
        "_sweep",
        "_transport",
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
        """Quota and budget are shared by all listeners of a node; `transport` is the runtime's own
        unless the listener speaks TLS."""
        self._name = name
        self._handlers = handlers
        self._runtime = runtime
        self._transport = transport or runtime.transport
        self._quota = quota
        self._budget = budget
        self._limits = limits or ServerLimits()
        self._listener: Listener | None = None
        #: In the order of their coming: a set would close them in the order of their addresses.
        self._connections: dict[Connection, None] = {}
        #: Came before the node was ready: nothing is read from them yet. None once it is.
        self._early: list[Channel] | None = []
        self._empty = asyncio.Event()
        self._sweep: Task | None = None
        self._accepted = 0
        self._refused = 0
        self._refusal_logged_ms: int | None = None

    @property
    def address(self) -> Address:
        assert self._listener is not None, "not started"
        return self._listener.address

    async def start(self, address: Address) -> None:
        """Binds; connections are accepted but wait until `serve` is called."""
        self._listener = await self._transport.listen(address, self._on_channel)
        self._sweep = self._runtime.spawn(self._close_idle(), name=f"idle-sweep-{self._name}")

    def serve(self) -> None:
        """The node can answer now."""
        early, self._early = self._early or [], None
        for channel in early:
            self._on_channel(channel)

    async def stop(self, *, grace_ms: int = 1_000) -> None:
        """Accepts and reads no more, sends what is ready, then cuts."""
        if self._listener is not None:
            self._listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for channel in self._early or ():
            channel.abort()
        for end in (Connection.close, Connection.abort):
            for connection in list(self._connections):
                end(connection)
            if await self._are_all_gone_within(grace_ms):
                return

    async def _are_all_gone_within(self, wait_ms: int) -> bool:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def statistics(self) -> dict[str, int]:
        return {
            "connections": len(self._connections),
            "accepted": self._accepted,
            "refused": self._refused,
        }

    def _on_channel(self, channel: Channel) -> None:
        if self._early is not None:
            if len(self._early) < _EARLY_MAX:
                self._early.append(channel)
            else:
                self._refuse(channel, "the node is still starting")
            return
        refusal = self._quota.take(channel.peer.host)
        if refusal is not None:
            self._refuse(channel, refusal)
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
        )
        self._connections[connection] = None
        connection.start()

    def _refuse(self, channel: Channel, reason: str) -> None:
        self._refused += 1
        channel.abort()
        now_ms = self._runtime.clock.mono_ms()
        last_ms = self._refusal_logged_ms
        if last_ms is None or now_ms - last_ms >= _REFUSAL_LOG_MS:
            self._refusal_logged_ms = now_ms
            logger.warning("%s: refused a connection: %s", self._name, reason)

    def _on_ended(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._quota.give_back(connection.channel.peer.host)
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
                logger.debug(
                    "%s: closed idle connection of %s", self._name, connection.channel.peer
                )
                connection.close()
