"""The listeners of a running node: those of its configuration file, and those that dynamic
settings add or remove, with the connection limits in these settings.

Controllers and brokers have separate limits, as in Kafka: clients that use up the connections or
queued.max.request.bytes of a broker cannot lock out the controllers. What a node advertises and the
listeners of controllers do not change while it runs.

A change that cannot be applied never stops the node. `failures` reports it, and the node retries
until the setting changes: a port may become free, and a host may become resolvable.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from lograft.model.errors import InvalidConfig
from lograft.model.exchange import HandlerFactory
from lograft.model.listeners import Endpoint
from lograft.model.metrics import Sample
from lograft.model.seams import Address, Runtime, Task, Transport
from lograft.model.settings.broker import BrokerConfig
from lograft.net.connection_limits import AddressRates, ConnectionQuota, limits_of
from lograft.net.frame_memory import FrameBudget
from lograft.net.name_resolution import find_addresses
from lograft.net.server import Server, ServerLimits

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
#: The pause before the next try doubles from the first to the second.
RETRY_PAUSE_S_MIN: Final = 0.5
RETRY_PAUSE_S_MAX: Final = 30.0

LOGGER: Final = logging.getLogger(__name__)


class _Failure(NamedTuple):
    #: Begins with the name of the setting.
    message: str
    is_retried: bool = True


class ListenerSet:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        *,
        handlers: Callable[[Endpoint], HandlerFactory],
        transport_of: Callable[[Endpoint, BrokerConfig], Transport],
        address_rates: Callable[[], AddressRates] | None = None,
    ) -> None:
        """`transport_of` raises InvalidConfig if the settings of a listener are not usable.
        `address_rates` is called for each role."""
        self._runtime = runtime
        self._config = config
        self._handlers = handlers
        self._transport_of = transport_of
        request_bytes_max = max(config.queued_max_request_bytes, 0)
        self._budgets = {
            role: FrameBudget(request_bytes_max=request_bytes_max) for role in (BROKER, CONTROLLER)
        }
        self._server_limits = ServerLimits(idle_ms_max=config.connections_max_idle_ms)
        self._servers: dict[str, Server] = {}
        #: The endpoints with which the listeners were opened.
        self._endpoints: dict[str, Endpoint] = {}
        self._quotas = {
            role: ConnectionQuota(address_rates=None if address_rates is None else address_rates())
            for role in (BROKER, CONTROLLER)
        }
        self._serving: set[str] = set()
        self._changed = asyncio.Event()
        self._follower: Task | None = None
        self._failures: list[_Failure] = []

    @property
    def addresses(self) -> Mapping[str, Address]:
        """Returns addresses by listener name, with the ports that were bound."""
        return {name: server.address for name, server in self._servers.items()}

    @property
    def failures(self) -> list[str]:
        """Returns the listener and connection settings that are not in effect, with the reasons."""
        return [failure.message for failure in self._failures]

    def role_of(self, listener: str) -> str:
        return CONTROLLER if listener in self._config.controller_listener_names else BROKER

    async def open(self) -> None:
        """Binds all listeners. Clients can connect, and wait until `serve` is called."""
        self._report(await self._update_limits(self._config))
        for endpoint in self._config.listeners:
            await self._open(endpoint, self._config)
        self._follower = self._runtime.spawn(self._follow_changes(), name="listener changes")

    def serve(self, role: str) -> None:
        self._serving.add(role)
        for name, server in self._servers.items():
            if self.role_of(name) == role:
                server.serve()

    def follow(self, config: BrokerConfig) -> None:
        """Applies changed dynamic settings."""
        self._config = config
        self._changed.set()

    async def stop(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
        for server in list(self._servers.values()):
            await server.stop()

    def collect_samples(self) -> Iterator[Sample]:
        for role, budget in self._budgets.items():
            yield from budget.collect_samples(role)
        for server in list(self._servers.values()):
            yield from server.collect_samples()

    async def _open(self, endpoint: Endpoint, config: BrokerConfig) -> None:
        role = self.role_of(endpoint.name)
        server = Server(
            endpoint.name,
            self._handlers(endpoint),
            runtime=self._runtime,
            quota=self._quotas[role],
            budget=self._budgets[role],
            limits=self._server_limits,
            transport=self._transport_of(endpoint, config),
        )
        await server.start(endpoint.address)
        self._servers[endpoint.name] = server
        self._endpoints[endpoint.name] = endpoint
        if role in self._serving:
            server.serve()

    async def _follow_changes(self) -> None:
        pause_s = RETRY_PAUSE_S_MIN
        while True:
            is_incomplete = any(failure.is_retried for failure in self._failures)
            try:
                async with asyncio.timeout(pause_s if is_incomplete else None):
                    await self._changed.wait()
                pause_s = RETRY_PAUSE_S_MIN
            except TimeoutError:
                pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)
            self._changed.clear()
            config = self._config
            try:
                failures = await self._update_limits(config)
                failures += await self._update_listeners(config)
            except Exception as error:
                # The open listeners continue, whatever the settings are.
                LOGGER.exception("could not apply the settings of the listeners")
                failures = [_Failure(f"listeners: {error!r}")]
            self._report(failures)

    def _report(self, failures: list[_Failure]) -> None:
        """Logs each failure once."""
        for failure in failures:
            if failure not in self._failures:
                LOGGER.error("%s", failure.message)
        self._failures = failures

    async def _update_listeners(self, config: BrokerConfig) -> list[_Failure]:
        failures = [
            self._describe_moved(endpoint)
            for endpoint in config.listeners
            if endpoint.name in self._servers
            and self._endpoints[endpoint.name].address != endpoint.address
        ]
        endpoints = {endpoint.name: endpoint for endpoint in config.broker_listeners}
        for name, server in list(self._servers.items()):
            if name not in endpoints and self.role_of(name) == BROKER:
                LOGGER.info("closing listener %s, which was removed from listeners", name)
                del self._servers[name]
                await server.stop()
        for name, endpoint in endpoints.items():
            if name in self._servers:
                continue
            try:
                await self._open(endpoint, config)
            except (OSError, InvalidConfig) as error:
                failures.append(_Failure(f"listeners: listener {endpoint} cannot open: {error}"))
            else:
                LOGGER.info("opened listener %s", endpoint)
        return failures

    def _describe_moved(self, endpoint: Endpoint) -> _Failure:
        return _Failure(
            f"listeners: listener {endpoint.name} stays at {self._servers[endpoint.name].address},"
            f" not at {endpoint.address}: change its address in the node's file and restart it",
            is_retried=False,
        )

    async def _update_limits(self, config: BrokerConfig) -> list[_Failure]:
        overrides, unknown = await resolve_hosts(config.max_connections_per_ip_overrides)
        names = [endpoint.name for endpoint in config.listeners]
        limits = limits_of(config, names, per_ip_overrides=overrides)
        for quota in self._quotas.values():
            if quota.limits != limits:
                quota.update(limits)
        return [
            _Failure(f"max.connections.per.ip.overrides: {host} cannot be resolved: {error}")
            for host, error in unknown.items()
        ]


async def resolve_hosts(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, OSError]]:
    """Returns the counts by address instead of host name, and hosts that cannot be resolved."""
    by_address: dict[str, int] = {}
    unresolved: dict[str, OSError] = {}
    for host, count in counts.items():
        try:
            by_address[str(ip_address(host))] = count
        except ValueError:
            try:
                addresses = await find_addresses(host)
            except OSError as error:
                unresolved[host] = error
                continue
            by_address.update({str(address[0]): count for *_, address in addresses})
    return by_address, unresolved
