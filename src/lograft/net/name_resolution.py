"""Addresses of hosts, and their canonical names (forward and reverse look-ups) for
client.dns.lookup."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Protocol


class Resolver(Protocol):
    async def canonical_names(self, host: str) -> list[str]:
        """The canonical name of each address of the host, each once. Raises OSError if the host has
        no address."""


class SystemResolver:
    async def canonical_names(self, host: str) -> list[str]:
        """An address whose name cannot be found, or whose name does not lead back to the address,
        is its own name."""
        addresses = await _addresses_of(host)
        return list(dict.fromkeys([await _canonical_name(one) for one in addresses]))


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
        raise OSError(socket.EAI_NONAME, f"{host!r} cannot be the name of a host") from None


async def _addresses_of(host: str) -> list[str]:
    found = await find_addresses(host)
    return list(dict.fromkeys(str(raw[0]) for *_, raw in found))
