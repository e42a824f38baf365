"""Real sockets between nodes and to clients, with links that can be cut.

A cut link keeps its connections: outgoing data is buffered, incoming data is not read, and a
connection attempt waits until the link is restored or the attempt times out. On a connection
between two nodes only the end that connected is blocked, which blocks both directions.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from lograft.model.seams import Address, Channel, Listener, Part, Receiver
from lograft.net.sockets import SocketTransport

#: The node id that stands for all clients in links.
CLIENTS: Final = 0


class Links:
    """The nodes behind ports, and the links that are cut. Since nodes run in threads, dicts and
    sets are replaced and never changed in place."""

    def __init__(self) -> None:
        #: Node id by listening port.
        self._nodes: dict[int, int] = {}
        #: Node id of the end that connected, by its port.
        self._connected: dict[int, int] = {}
        #: (from, to)
        self._cut: frozenset[tuple[int, int]] = frozenset()
        #: Called, in any thread, after a change.
        self.on_change: Callable[[], None] = lambda: None

    def add_listener(self, port: int, node_id: int) -> None:
        """Records that the node listens on the port."""
        self._nodes = {**self._nodes, port: node_id}

    def node_at(self, address: Address) -> int:
        return self._nodes.get(address.port, CLIENTS)

    def node_of(self, channel: Channel) -> int:
        """Returns the node that opened the connection, or CLIENTS."""
        return self._connected.get(channel.peer.port, CLIENTS)

    def add_connection(self, channel: Channel, node_id: int) -> None:
        self._connected = {**self._connected, channel.local.port: node_id}
        if self._cut:
            # The accepting node may have treated the connection as that of a client.
            self.on_change()

    def remove_connection(self, channel: Channel) -> None:
        remaining = dict(self._connected)
        remaining.pop(channel.local.port, None)
        self._connected = remaining

    def cut(self, source: int, target: int) -> None:
        self._cut |= {(source, target)}
        self.on_change()

    def heal(self) -> None:
        self._cut = frozenset()
        self.on_change()

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut


class CuttableChannel:
    """A channel that can be blocked in each direction."""

    def __init__(self, inner: Channel, on_closed: "Callable[[CuttableChannel], None]") -> None:
        self._inner = inner
        self._on_closed = on_closed
        self._buffered: list[Part] = []
        self._blocks_outgoing = False
        self._blocks_incoming = False
        self._is_reading = True
        self._is_closing = False

    @property
    def local(self) -> Address:
        return self._inner.local

    @property
    def peer(self) -> Address:
        return self._inner.peer

    @property
    def unsent_bytes(self) -> int:
        return self._inner.unsent_bytes

    def block(self, *, outgoing: bool, incoming: bool) -> None:
        if incoming != self._blocks_incoming:
            self._blocks_incoming = incoming
            if incoming:
                self._inner.pause_reading()
            elif self._is_reading:
                self._inner.resume_reading()
        self._blocks_outgoing = outgoing
        if not outgoing and self._buffered:
            buffered, self._buffered = self._buffered, []
            self._inner.send(buffered)
            if self._is_closing:
                self._inner.close()

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._inner.start(self)

    def send(self, parts: Sequence[Part]) -> None:
        if self._blocks_outgoing:
            self._buffered += parts
        else:
            self._inner.send(parts)

    def pause_reading(self) -> None:
        self._is_reading = False
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        if not self._blocks_incoming:
            self._inner.resume_reading()

    def close(self) -> None:
        self._is_closing = True
        if not self._buffered:
            self._inner.close()

    def abort(self) -> None:
        self._on_closed(self)
        self._inner.abort()

    # The receiver of the inner channel.

    def get_buffer(self) -> memoryview:
        return self._receiver.get_buffer()

    def on_received(self, count: int) -> None:
        self._receiver.on_received(count)

    def on_drained(self) -> None:
        self._receiver.on_drained()

    def on_closed(self, error: Exception | None) -> None:
        self._on_closed(self)
        self._receiver.on_closed(error)


class CuttableTransport:
    """The network of a node, from its start until it exits."""

    def __init__(self, links: Links, node_id: int) -> None:
        self._links = links
        self._node_id = node_id
        self._inner = SocketTransport()
        self._listeners: list[Listener] = []
        self._accepted: set[CuttableChannel] = set()
        self._connected: dict[CuttableChannel, int] = {}
        self._changed = asyncio.Event()

    async def listen(self, address: Address, on_channel: Callable[[Channel], None]) -> Listener:
        def accept(channel: Channel) -> None:
            cuttable = CuttableChannel(channel, self._accepted.discard)
            self._accepted.add(cuttable)
            self._block_accepted(cuttable)
            on_channel(cuttable)

        listener = await self._inner.listen(address, accept)
        self._listeners.append(listener)
        return listener

    async def connect(self, address: Address, *, timeout_ms: int) -> Channel:
        other = self._links.node_at(address)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._links.is_cut(self._node_id, other) or self._links.is_cut(
                    other, self._node_id
                ):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"no connection to {address} within {timeout_ms} ms") from None
        channel = CuttableChannel(
            await self._inner.connect(address, timeout_ms=timeout_ms), self._forget
        )
        self._links.add_connection(channel, self._node_id)
        self._connected[channel] = other
        self._block(channel, other)
        return channel

    def _forget(self, channel: CuttableChannel) -> None:
        self._connected.pop(channel, None)
        self._links.remove_connection(channel)

    def links_changed(self) -> None:
        for channel in list(self._accepted):
            self._block_accepted(channel)
        for channel, other in list(self._connected.items()):
            self._block(channel, other)
        self._changed.set()

    def abort(self) -> None:
        """Closes all sockets immediately, as at the end of a process."""
        for listener in self._listeners:
            listener.close()
        for channel in [*self._accepted, *self._connected]:
            channel.abort()

    def _block_accepted(self, channel: CuttableChannel) -> None:
        if self._links.node_of(channel) == CLIENTS:
            self._block(channel, CLIENTS)

    def _block(self, channel: CuttableChannel, other: int) -> None:
        outgoing = self._links.is_cut(self._node_id, other)
        incoming = self._links.is_cut(other, self._node_id)
        channel.block(outgoing=outgoing, incoming=incoming)
