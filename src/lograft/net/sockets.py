"""The Transport seam over the sockets of this machine."""

import asyncio
import errno
import socket
from collections.abc import Callable

from lograft.model.seams import Address, Channel, Listener
from lograft.net.channels import BufferSizes, SocketChannel, address_of, prepare
from lograft.net.name_resolution import find_addresses
from lograft.net.priority_reads import PriorityReads
from lograft.net.socket_listener import BACKLOG, SocketListener


class SocketTransport:
    __slots__ = ("_backlog", "_buffers", "_priority_reads")

    def __init__(self, buffers: BufferSizes | None = None, *, backlog: int | None = None) -> None:
        """`backlog`: maximum number of connections that wait to be accepted."""
        self._backlog = backlog or BACKLOG
        self._buffers = buffers or BufferSizes()
        self._priority_reads = PriorityReads()

    async def listen(self, address: Address, on_channel: Callable[[Channel], None]) -> Listener:
        """Listens on all addresses of the name; an empty host means all interfaces, with both
        families."""
        return await SocketListener.open(
            asyncio.get_running_loop(),
            address,
            on_channel,
            self._buffers,
            self._priority_reads,
            backlog=self._backlog,
        )

    async def connect(self, address: Address, *, timeout_ms: int) -> Channel:
        """Tries the addresses of the name in order. Raises OSError, of which TimeoutError is
        one."""
        loop = asyncio.get_running_loop()
        failure: OSError = OSError(errno.EHOSTUNREACH, f"{address.host} has no address")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                addresses = await find_addresses(address.host, address.port)
                for family, kind, protocol, _, raw in addresses:
                    outgoing = socket.socket(family, kind, protocol)
                    try:
                        prepare(outgoing, self._buffers)
                        await loop.sock_connect(outgoing, raw)
                    except OSError as error:
                        outgoing.close()
                        failure = error
                    except BaseException:
                        outgoing.close()
                        raise
                    else:
                        return SocketChannel(loop, outgoing, address_of(raw), self._priority_reads)
        except TimeoutError:
            raise TimeoutError(f"no connection to {address} within {timeout_ms} ms") from None
        raise failure
