"""Detects the end of a broker's process long before its session times out.

When a process terminates, its kernel closes its connections and listeners. So if a broker's
heartbeat connection is closed, the controller connects to the broker's address: if that is refused,
the process has terminated and the broker is fenced. An accepted connection proves nothing, since
the kernel also accepts connections for a suspended process, and neither does a timeout. In these
cases the session timeout decides. The same check applies to brokers that have not sent a heartbeat
to a new controller yet, and to those whose heartbeat is late.
"""

import asyncio
import logging
from typing import Final, Protocol

from lograft.broker.errors import NotController
from lograft.metadata.broker_sessions import BrokerSessions
from lograft.metadata.types import BrokerState, Endpoint
from lograft.model.hosts import is_loopback
from lograft.model.seams import Address, Runtime
from lograft.model.settings.broker import BrokerConfig

LOGGER: Final = logging.getLogger(__name__)

#: Backoff between checks: the first one may run after the connection was closed, but before the
#: listener of the process.
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 500
CONNECT_MS_MAX: Final = 1_000
#: A broker is late after this number of missing heartbeats.
HEARTBEATS_MISSED: Final = 2


class Registrations(Protocol):
    """The active controller (broker/control/controller.py)."""

    sessions: BrokerSessions

    @property
    def is_active(self) -> bool: ...

    def find_registered(self, broker_id: int, broker_epoch: int) -> BrokerState | None: ...

    async def fence(self, broker_id: int, broker_epoch: int, reason: str) -> None: ...


class FailureDetector:
    def __init__(self, runtime: Runtime, config: BrokerConfig, controller: Registrations) -> None:
        self._runtime = runtime
        self._config = config
        self._controller = controller
        #: Registrations that are being checked.
        self._watched: set[tuple[int, int]] = set()

    def check(self) -> None:
        """Starts checking brokers whose heartbeats are missing."""
        if not self._controller.is_active:
            return
        for broker_id, epoch in self._controller.sessions.suspects(
            self._last_heartbeat_before_ms()
        ):
            # The broker in this process.
            is_local = broker_id == self._config.node_id
            if is_local or (broker_id, epoch) in self._watched:
                continue
            if self._controller.find_registered(broker_id, epoch) is not None:
                self._watched.add((broker_id, epoch))
                self._runtime.spawn(self._watch(broker_id, epoch), name=f"check broker {broker_id}")

    async def _watch(self, broker_id: int, epoch: int) -> None:
        pause_ms = PAUSE_MS_MIN
        try:
            while self._is_suspect(broker_id, epoch):
                broker = self._controller.find_registered(broker_id, epoch)
                if broker is None:
                    return
                if await self._is_gone(broker):
                    # It may have registered again, or sent a heartbeat, in the meantime.
                    if self._is_suspect(broker_id, epoch):
                        await self._controller.fence(broker_id, epoch, "its process has ended")
                    return
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        except NotController:
            # The next active controller checks for itself.
            return
        finally:
            self._watched.discard((broker_id, epoch))

    def _is_suspect(self, broker_id: int, epoch: int) -> bool:
        controller = self._controller
        return controller.is_active and controller.sessions.is_suspect(
            broker_id, epoch=epoch, last_heartbeat_before_ms=self._last_heartbeat_before_ms()
        )

    def _last_heartbeat_before_ms(self) -> int:
        late_ms = HEARTBEATS_MISSED * self._config.broker_heartbeat_interval_ms
        return self._runtime.clock.mono_ms() - late_ms

    async def _is_gone(self, broker: BrokerState) -> bool:
        """Whether the inter-broker listener refuses connections; if it is unknown, whether all
        listeners do."""
        own = broker.endpoint(self._config.inter_broker_listener_name)
        endpoints = broker.endpoints if own is None else (own,)
        for endpoint in endpoints:
            if not self._is_reachable_by_name(endpoint) or not await self._is_refused(endpoint):
                return False
        return bool(endpoints)

    def _is_reachable_by_name(self, endpoint: Endpoint) -> bool:
        """Whether the host name means the same for this node. A broker in a container may advertise
        "localhost" and mean the container: unless this node does so, too, a refused connection
        proves nothing."""
        if not is_loopback(endpoint.host):
            return True
        ours = self._config.advertised_controller_listeners
        return any(is_loopback(listener.host) for listener in ours)

    async def _is_refused(self, endpoint: Endpoint) -> bool:
        address = Address(endpoint.host, endpoint.port)
        try:
            channel = await self._runtime.transport.connect(address, timeout_ms=CONNECT_MS_MAX)
        except ConnectionRefusedError:
            return True
        except OSError as error:
            LOGGER.debug("%s does not respond: %s", address, error)
            return False
        channel.abort()
        return False
