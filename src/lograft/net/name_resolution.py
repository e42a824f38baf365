"""Addresses of hosts, and their canonical names (forward and reverse look-ups) for
client.dns.lookup."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Protocol


class Resolver(Protocol):
    async def canonical_names(self, host: str) -> list[str]:
        """Returns the canonical names of the host's addresses, without duplicates. Raises OSError
        if the host has no address."""


class SystemResolver:
    async def canonical_names(self, host: str) -> list[str]:
        """Returns the address itself if it has no name, or if the name does not resolve to it."""
        addresses = await _addresses_of(host)
        return list(dict.fromkeys([await _canonical_name(address) for address in addresses]))


async def _canonical_name(address: str) -> str:
    loop = asyncio.get_running_loop()
    try:
        name, _ = await loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
        return name if address in await _addresses_of(name) else address
    except OSError:
        return address


async def find_addresses(
    host: str, port: int | None = None
) -> Sequence[tuple[socket.AddressFamily, int, int, str, Any]]:
    """Returns what getaddrinfo finds for TCP. Raises OSError, also for invalid host names, for
    which getaddrinfo raises UnicodeError or ValueError."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:
        raise OSError(socket.EAI_NONAME, f"{host!r} is not a valid host name") from None


async def _addresses_of(host: str) -> list[str]:
    addresses = await find_addresses(host)
    return list(dict.fromkeys(str(raw[0]) for *_, raw in addresses))
