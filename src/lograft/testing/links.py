"""Real sockets between nodes and to clients, which can be cut.

A link that is cut keeps its connections: what is sent waits, what arrives is not read, and who
connects hears nothing until it is mended or gives up. Of a connection between two nodes only the
end that connected is held: that is both ways already.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from lograft.model.seams import Address, Channel, Listener, Part, Receiver
from lograft.net.sockets import SocketTransport

#: The number that stands for all clients where links are cut.
CLIENTS: Final = 0


class Links:
    """Which node is where, and who cannot talk to whom. Nodes live in threads: everything here is
    changed as a whole, never in place."""

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}
        #: Of connections between nodes: the port of the end that connected, and whose it is.
        self._connected: dict[int, int] = {}
        #: (from, to)
        self._cut: frozenset[tuple[int, int]] = frozenset()
        #: Called in any thread when something has changed.
        self.on_change: Callable[[], None] = lambda: None

    def place(self, port: int, node_id: int) -> None:
        """The node listens there."""
        self._nodes = {**self._nodes, port: node_id}

    def node_at(self, address: Address) -> int:
        return self._nodes.get(address.port, CLIENTS)

    def node_of(self, channel: Channel) -> int:
        """Who connected."""
        return self._connected.get(channel.peer.port, CLIENTS)

    def connected(self, channel: Channel, node_id: int) -> None:
        self._connected = {**self._connected, channel.local.port: node_id}
        if self._cut:
            # The end that was connected to may have taken it for a client's.
            self.on_change()

    def disconnected(self, channel: Channel) -> None:
        left = dict(self._connected)
        left.pop(channel.local.port, None)
        self._connected = left

    def cut(self, source: int, target: int) -> None:
        self._cut |= {(source, target)}
        self.on_change()

    def mend(self) -> None:
        self._cut = frozenset()
        self.on_change()

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut


class CuttableChannel:
    """A channel that holds what a cut link would."""

    def __init__(self, inner: Channel, on_closed: "Callable[[CuttableChannel], None]") -> None:
        self._inner = inner
        self._on_closed = on_closed
        self._held: list[Part] = []
        self._holds_out = False
        self._holds_in = False
        self._reads = True
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

    def hold(self, *, outgoing: bool, incoming: bool) -> None:
        if incoming != self._holds_in:
            self._holds_in = incoming
            if incoming:
                self._inner.pause_reading()
            elif self._reads:
                self._inner.resume_reading()
        self._holds_out = outgoing
        if not outgoing and self._held:
            held, self._held = self._held, []
            self._inner.send(held)
            if self._is_closing:
                self._inner.close()

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._inner.start(self)

    def send(self, parts: Sequence[Part]) -> None:
        if self._holds_out:
            self._held += parts
        else:
            self._inner.send(parts)

    def pause_reading(self) -> None:
        self._reads = False
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._reads = True
        if not self._holds_in:
            self._inner.resume_reading()

    def close(self) -> None:
        self._is_closing = True
        if not self._held:
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
    """The network of one node, for one of its lives."""

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
            wrapped = CuttableChannel(channel, self._accepted.discard)
            self._accepted.add(wrapped)
            self._hold_accepted(wrapped)
            on_channel(wrapped)

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
        self._links.connected(channel, self._node_id)
        self._connected[channel] = other
        self._hold(channel, other)
        return channel

    def _forget(self, channel: CuttableChannel) -> None:
        self._connected.pop(channel, None)
        self._links.disconnected(channel)

    def links_changed(self) -> None:
        for channel in list(self._accepted):
            self._hold_accepted(channel)
        for channel, other in list(self._connected.items()):
            self._hold(channel, other)
        self._changed.set()

    def die(self) -> None:
        """The process is gone: its sockets are closed, whatever waits in them."""
        for listener in self._listeners:
            listener.close()
        for channel in [*self._accepted, *self._connected]:
            channel.abort()

    def _hold_accepted(self, channel: CuttableChannel) -> None:
        if self._links.node_of(channel) == CLIENTS:
            self._hold(channel, CLIENTS)

    def _hold(self, channel: CuttableChannel, other: int) -> None:
        links, me = self._links, self._node_id
        channel.hold(outgoing=links.is_cut(me, other), incoming=links.is_cut(other, me))
