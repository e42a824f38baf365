"""Bootstrap addresses of a client: bootstrap.servers, resolved according to client.dns.lookup."""

import logging
from collections.abc import Sequence
from typing import Final

from lograft.client.client_settings import (
    RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY,
    ClientSettings,
)
from lograft.client.errors import ConnectionFailed
from lograft.model.seams import Address
from lograft.net.name_resolution import Resolver

LOGGER: Final = logging.getLogger(__name__)


class Bootstrap:
    def __init__(self, settings: ClientSettings, resolver: Resolver) -> None:
        self._configured = settings.bootstrap_addresses()
        self._resolves = settings.client_dns_lookup == RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY
        self._resolver = resolver
        self._resolved: Sequence[Address] = ()

    async def addresses(self) -> Sequence[Address]:
        """Returns the addresses. With resolve_canonical_bootstrap_servers_only, each server is
        replaced by the canonical names of its IP addresses: an alias may stand for many brokers,
        and Kerberos and certificates may contain only their canonical names. Raises
        ConnectionFailed if no server can be resolved."""
        if not self._resolves:
            return self._configured
        if not self._resolved:
            self._resolved = await self._resolve()
        return self._resolved

    def forget(self) -> None:
        """The next call resolves the names again."""
        self._resolved = ()

    async def _resolve(self) -> Sequence[Address]:
        found: dict[Address, None] = {}
        failure = ""
        for server in self._configured:
            try:
                names = await self._resolver.canonical_names(server.host)
            except OSError as error:
                failure = str(error)
                LOGGER.warning("bootstrap server %s cannot be resolved: %s", server, error)
                continue
            found.update((Address(name, server.port), None) for name in names)
        if not found:
            raise ConnectionFailed(self._configured[0], "resolve", failure)
        return list(found)
