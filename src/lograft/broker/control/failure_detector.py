"""Notices that a broker's process is gone, long before its session times out.

When a process dies its kernel closes its connections and listeners. So a broker whose heartbeat
connection has ended is called at its address: if that is refused nobody lives there any more, and
it is fenced. An accepted call proves nothing (a paused process has a kernel that answers), nor does
silence: those are left to the session's timeout. The same for a broker that a new controller has
not heard yet, or that is late.
"""

import asyncio
import logging
from ipaddress import ip_address
from typing import Final, Protocol

from lograft.broker.errors import NotController
from lograft.metadata.broker_sessions import BrokerSessions
from lograft.metadata.types import BrokerState, Endpoint
from lograft.model.seams import Address, Runtime
from lograft.model.settings.broker import BrokerConfig

LOGGER: Final = logging.getLogger(__name__)

#: The first look may come between the end of a connection and that of its process' listener.
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 500
CALL_MS_MAX: Final = 1_000
#: A broker is late after so many heartbeats that did not come.
HEARTBEATS_MISSED: Final = 2


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Registrations(Protocol):
    """The active controller (broker/control/controller.py)."""

    sessions: BrokerSessions

    @property
    def is_active(self) -> bool: ...

    def registered(self, broker_id: int, broker_epoch: int) -> BrokerState | None: ...

    async def fence(self, broker_id: int, broker_epoch: int, reason: str) -> None: ...


class FailureDetector:
    def __init__(self, runtime: Runtime, config: BrokerConfig, controller: Registrations) -> None:
        self._runtime = runtime
        self._config = config
        self._controller = controller
        #: Registrations that are looked after now.
        self._watched: set[tuple[int, int]] = set()

    def look(self) -> None:
        """Begins to look after those that should be heard and are not."""
        if not self._controller.is_active:
            return
        for broker_id, epoch in self._controller.sessions.suspects(self._heard_before_ms()):
            # Who is in this process lives as long as it does.
            is_local = broker_id == self._config.node_id
            if is_local or (broker_id, epoch) in self._watched:
                continue
            if self._controller.registered(broker_id, epoch) is not None:
                self._watched.add((broker_id, epoch))
                self._runtime.spawn(self._watch(broker_id, epoch), name=f"is {broker_id} alive")

    async def _watch(self, broker_id: int, epoch: int) -> None:
        pause_ms = PAUSE_MS_MIN
        try:
            while self._is_suspect(broker_id, epoch):
                broker = self._controller.registered(broker_id, epoch)
                if broker is None:
                    return
                if await self._is_gone(broker):
                    # Meanwhile it may have come back under another registration, or spoken.
                    if self._is_suspect(broker_id, epoch):
                        await self._controller.fence(broker_id, epoch, "its process has ended")
                    return
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        except NotController:
            # The next one looks for itself.
            return
        finally:
            self._watched.discard((broker_id, epoch))

    def _is_suspect(self, broker_id: int, epoch: int) -> bool:
        controller = self._controller
        return controller.is_active and controller.sessions.is_suspect(
            broker_id, epoch=epoch, last_heartbeat_before_ms=self._heard_before_ms()
        )

    def _heard_before_ms(self) -> int:
        late_ms = HEARTBEATS_MISSED * self._config.broker_heartbeat_interval_ms
        return self._runtime.clock.mono_ms() - late_ms

    async def _is_gone(self, broker: BrokerState) -> bool:
        """Where nodes reach each other under a known name that place tells; otherwise all must."""
        own = broker.endpoint(self._config.inter_broker_listener_name)
        endpoints = broker.endpoints if own is None else (own,)
        for endpoint in endpoints:
            if not self._is_meant_for_us(endpoint) or not await self._is_refused(endpoint):
                return False
        return bool(endpoints)

    def _is_meant_for_us(self, endpoint: Endpoint) -> bool:
        """A broker in a container may say "localhost" and mean its own: unless this node says it
        too, nobody at that address proves nothing."""
        if not is_loopback(endpoint.host):
            return True
        ours = self._config.advertised_controller_listeners
        return any(is_loopback(each.host) for each in ours)

    async def _is_refused(self, endpoint: Endpoint) -> bool:
        address = Address(endpoint.host, endpoint.port)
        try:
            channel = await self._runtime.transport.connect(address, timeout_ms=CALL_MS_MAX)
        except ConnectionRefusedError:
            return True
        except OSError as error:
            LOGGER.debug("%s does not respond: %s", address, error)
            return False
        channel.abort()
        return False
