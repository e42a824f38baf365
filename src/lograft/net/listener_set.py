"""The listeners of a node while it runs: those of its file, and those that dynamic settings add or
remove, with the limits of connections that follow the settings.

Controllers and brokers have separate limits, as in Kafka: clients that use up the connections of a
broker cannot lock out the controllers. What a node advertises and the listeners of controllers do
not change while it runs.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final

from lograft.model.errors import InvalidConfig
from lograft.model.exchange import HandlerFactory
from lograft.model.listeners import Endpoint
from lograft.model.seams import Address, Runtime, Task, Transport
from lograft.model.settings.broker import BrokerConfig
from lograft.net.connection_limits import ConnectionQuota, limits_of
from lograft.net.frame_memory import FrameBudget
from lograft.net.serving import Server, ServerLimits

BROKER: Final = "broker"
CONTROLLER: Final = "controller"

logger = logging.getLogger(__name__)


class ListenerSet:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        *,
        handlers: Callable[[Endpoint], HandlerFactory],
        transport_of: Callable[[Endpoint, BrokerConfig], Transport],
    ) -> None:
        """`transport_of` raises InvalidConfig when the settings of a listener cannot be used."""
        self._runtime = runtime
        self._config = config
        self._handlers = handlers
        self._transport_of = transport_of
        self._budget = FrameBudget(request_bytes_max=max(config.queued_max_request_bytes, 0))
        self._server_limits = ServerLimits(idle_ms_max=config.connections_max_idle_ms)
        self._servers: dict[str, Server] = {}
        #: What they were opened with, or what a warning has said about.
        self._endpoints: dict[str, Endpoint] = {}
        self._quotas = {role: ConnectionQuota() for role in (BROKER, CONTROLLER)}
        self._serving: set[str] = set()
        self._changed = asyncio.Event()
        self._follower: Task | None = None

    @property
    def addresses(self) -> Mapping[str, Address]:
        """By listener name, with the ports that were bound."""
        return {name: server.address for name, server in self._servers.items()}

    def role_of(self, listener: str) -> str:
        return CONTROLLER if listener in self._config.controller_listener_names else BROKER

    async def open(self) -> None:
        """Binds all listeners. Clients can connect, and wait until their role serves."""
        await self._update_limits(self._config)
        for endpoint in self._config.listeners:
            await self._open(endpoint, self._config)
        self._follower = self._runtime.spawn(self._follow_changes(), name="listener changes")

    def serve(self, role: str) -> None:
        self._serving.add(role)
        for name, server in self._servers.items():
            if self.role_of(name) == role:
                server.serve()

    def follow(self, config: BrokerConfig) -> None:
        """Dynamic settings changed."""
        self._config = config
        self._changed.set()

    async def stop(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
        for server in list(self._servers.values()):
            await server.stop()

    async def _open(self, endpoint: Endpoint, config: BrokerConfig) -> None:
        role = self.role_of(endpoint.name)
        server = Server(
            endpoint.name,
            self._handlers(endpoint),
            runtime=self._runtime,
            quota=self._quotas[role],
            budget=self._budget,
            limits=self._server_limits,
            transport=self._transport_of(endpoint, config),
        )
        await server.start(endpoint.address)
        self._servers[endpoint.name] = server
        self._endpoints[endpoint.name] = endpoint
        if role in self._serving:
            server.serve()

    async def _follow_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            config = self._config
            await self._update_limits(config)
            await self._update_listeners(config)

    async def _update_listeners(self, config: BrokerConfig) -> None:
        wanted = {endpoint.name: endpoint for endpoint in config.broker_listeners}
        for name, server in list(self._servers.items()):
            if name not in wanted and self.role_of(name) == BROKER:
                logger.info("listener %s closes: listeners no longer names it", name)
                del self._servers[name]
                await server.stop()
        for name, endpoint in wanted.items():
            if name in self._servers:
                self._warn_of_address(endpoint)
                continue
            try:
                await self._open(endpoint, config)
            except (OSError, InvalidConfig) as error:
                logger.error("listener %s cannot open: %s", endpoint, error)
            else:
                logger.info("listener %s is open", endpoint)

    def _warn_of_address(self, endpoint: Endpoint) -> None:
        if self._endpoints[endpoint.name] != endpoint:
            self._endpoints[endpoint.name] = endpoint
            logger.warning(
                "listener %s stays at %s, not at %s: an address changes in the node's file and"
                " with a restart",
                endpoint.name,
                self._servers[endpoint.name].address,
                endpoint.address,
            )

    async def _update_limits(self, config: BrokerConfig) -> None:
        overrides = await resolve_hosts(config.max_connections_per_ip_overrides)
        names = [endpoint.name for endpoint in config.listeners]
        limits = limits_of(config, names, per_ip_overrides=overrides)
        for quota in self._quotas.values():
            if quota.limits != limits:
                quota.update(limits)


async def resolve_hosts(counts: Mapping[str, int]) -> dict[str, int]:
    """By address instead of host name, where the name is known."""
    found = {}
    for host, count in counts.items():
        try:
            found[str(ip_address(host))] = count
        except ValueError:
            try:
                known = await asyncio.get_running_loop().getaddrinfo(host, None)
            except OSError as error:
                logger.warning("max.connections.per.ip.overrides names %s: %s", host, error)
                continue
            found.update({str(address[0]): count for *_, address in known})
    return found
