"""Simulated network: the Transport seam over pipes in memory, with injected faults.

Within a connection, bytes stay in order and are never lost, as in TCP; they arrive in chunks of
random size, from one byte up, after a random latency. Cut links hold bytes until they heal. A dead
machine is silent, or resets its connections. Callbacks of a channel run in the process that started
it, so they stop with it."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from lograft.model.seams import Address, Channel, FileSlice, Listener, Part, Receiver
from lograft.simulation.loop import SimulatedLoop

LATENCY_NS: Final = (20_000, 2_000_000)
LATENCY_SPIKE_NS: Final = 50_000_000
SPIKE_CHANCE: Final = 0.01
#: Capacity of a connection, like the socket buffers of both sides. Deliberately small.
PIPE_BYTES: Final = (256, 65_536)
CHUNK_BYTES: Final = (1, 2, 7, 64, 1_000, 20_000, 1_000_000)
RETRANSMISSION_NS: Final = 1_000_000_000
RETRANSMISSIONS_MAX: Final = 30
EPHEMERAL_PORT: Final = 40_000
ANY_HOSTS: Final = ("", "0.0.0.0", "::", "localhost", "127.0.0.1")


class Network:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.random: Random = loop.streams.stream("net")
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.channels: dict[int, SimulatedChannel] = {}
        #: Context of the kernel's work, which continues after a process has died.
        self.kernel = contextvars.Context()
        self._cut: set[tuple[str, str]] = set()
        #: Factors by which the latency of these hosts is higher.
        self.slow_hosts: dict[str, int] = {}
        self._down: set[str] = set()
        self._port = EPHEMERAL_PORT
        self._numbers = 0

    # -- faults --------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Holds all bytes from source to target until `heal` or `restore_link`."""
        self.loop.trace.event("cut", source, target)
        self._cut.add((source, target))

    def restore_link(self, source: str, target: str) -> None:
        """Reverts a `cut`; held bytes are delivered."""
        self.loop.trace.event("mend", source, target)
        self._cut.discard((source, target))
        for channel in list(self.channels.values()):
            if channel.incoming.source == source and channel.incoming.target == target:
                channel.on_link_restored()

    def heal(self) -> None:
        self.loop.trace.event("heal")
        self._cut.clear()
        self.slow_hosts.clear()
        for channel in list(self.channels.values()):
            channel.on_link_restored()

    def reset_all(self, host: str) -> None:
        """Resets all connections of a host on both sides."""
        self.loop.trace.event("reset", host)
        for channel in list(self.channels.values()):
            if channel.host == host and not channel.is_closed:
                channel.break_both(ConnectionResetError("simulated reset"))

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def is_down(self, host: str) -> bool:
        return host in self._down

    def mark_host_up(self, host: str) -> None:
        self._down.discard(host)

    def mark_host_down(self, host: str) -> None:
        self._down.add(host)

    def on_process_died(self, host: str, *, silent: bool) -> None:
        for key in [key for key in self.listeners if key[0] == host]:
            del self.listeners[key]
        for channel in list(self.channels.values()):
            if channel.host == host:
                channel.vanish(silent=silent)

    def on_process_exited(self, host: str) -> None:
        for key in [key for key in self.listeners if key[0] == host]:
            del self.listeners[key]
        for channel in list(self.channels.values()):
            if channel.host == host:
                channel.outgoing.end()
                channel.vanish(silent=True)

    # -- connections -----------------------------------------------------------------------------

    def latency_ns(self) -> int:
        chance = self.random.random()
        if chance < SPIKE_CHANCE:
            return LATENCY_SPIKE_NS
        return LATENCY_NS[0] + int(chance * (LATENCY_NS[1] - LATENCY_NS[0]))

    def next_port(self) -> int:
        self._port += 1
        return self._port

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def join(
        self, client: Address, server: Address
    ) -> tuple["SimulatedChannel", "SimulatedChannel"]:
        forth, back = Pipe(self, client.host, server.host), Pipe(self, server.host, client.host)
        near = SimulatedChannel(self, local=client, peer=server, outgoing=forth, incoming=back)
        far = SimulatedChannel(self, local=server, peer=client, outgoing=back, incoming=forth)
        forth.reader, back.reader = far, near
        forth.writer, back.writer = near, far
        return near, far


class Pipe:
    """One direction of a connection: bytes in flight, in order."""

    __slots__ = (
        "_capacity", "_chunks", "_is_scheduled", "_network", "_retransmissions", "has_ended",
        "held_bytes", "reader", "source", "target", "writer",
    )  # fmt: skip

    reader: "SimulatedChannel"
    writer: "SimulatedChannel"

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self.source = source
        self.target = target
        self._capacity = network.random.randint(*PIPE_BYTES)
        #: (earliest arrival, data)
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._is_scheduled = False
        self._retransmissions = 0
        self.held_bytes = 0
        self.has_ended = False

    @property
    def free_bytes(self) -> int:
        return self._capacity - self.held_bytes

    def push(self, data: bytes) -> None:
        slow = self._network.slow_hosts
        factor = max(slow.get(self.source, 1), slow.get(self.target, 1)) if slow else 1
        arrival_ns = self._network.loop.now_ns + self._network.latency_ns() * factor
        self._chunks.append((arrival_ns, data))
        self.held_bytes += len(data)
        self.deliver_soon()

    def end(self) -> None:
        self.has_ended = True
        self.deliver_soon()

    def deliver_soon(self) -> None:
        reader = self.reader
        if self._is_scheduled or (reader.context is None and not reader.has_vanished):
            return
        now_ns = self._network.loop.now_ns
        arrival_ns = self._chunks[0][0] if self._chunks else now_ns + self._network.latency_ns()
        self._deliver_after(max(0, arrival_ns - now_ns))

    def _deliver_after(self, delay_ns: int) -> None:
        self._is_scheduled = True
        self._network.loop.call_later_ns(delay_ns, self._deliver, context=self._network.kernel)

    def _deliver(self) -> None:
        self._is_scheduled = False
        reader = self.reader
        if reader.is_closed or reader.has_vanished:
            self._respond_for_dead_reader()
        elif self._network.is_cut(self.source, self.target) or reader.is_paused:
            return
        elif self._chunks:
            self._is_scheduled = (
                True  # until the receiver has read its chunk, which keeps the order
            )
            reader.receive_soon()
        elif self.has_ended:
            reader.close_soon(None)

    def on_reader_died(self) -> None:
        self._is_scheduled = False
        self.deliver_soon()

    def _respond_for_dead_reader(self) -> None:
        if not self._chunks or self.writer.is_closed:
            return
        if self._network.is_down(self.target) or self._network.is_cut(self.source, self.target):
            self._retransmissions += 1
            if self._retransmissions <= RETRANSMISSIONS_MAX:
                self._deliver_after(RETRANSMISSION_NS)
            else:
                self.writer.break_soon(TimeoutError("the peer does not respond"))
        else:
            self.writer.break_soon(ConnectionResetError("the peer has closed the connection"))

    def take(self, limit: int) -> bytes:
        """Returns the next bytes for the receiver, a random number from one to `limit`."""
        size = min(limit, self._network.random.choice(CHUNK_BYTES))
        taken = bytearray()
        while self._chunks and len(taken) < size:
            arrival_ns, data = self._chunks[0]
            if arrival_ns > self._network.loop.now_ns and taken:
                break
            part = data[: size - len(taken)]
            taken += part
            if len(part) < len(data):
                self._chunks[0] = (arrival_ns, data[len(part) :])
            else:
                self._chunks.popleft()
        return bytes(taken)

    def release(self, count: int) -> None:
        self._is_scheduled = False
        self.held_bytes -= count
        self.writer.pump_soon()
        if self._chunks or self.has_ended:
            self.deliver_soon()


class SimulatedChannel:
    def __init__(
        self, network: Network, *, local: Address, peer: Address, outgoing: Pipe, incoming: Pipe
    ) -> None:
        self._network = network
        self._local = local
        self._peer = peer
        self._number = network.next_number()
        self._queue: deque[Part] = deque()
        self._receiver: Receiver | None = None
        self._must_notify_drained = False
        self._is_closing = False
        self._held_reset: Exception | None = None
        self.outgoing = outgoing
        self.incoming = incoming
        self.context: contextvars.Context | None = None
        self.is_paused = False
        self.is_closed = False
        #: The process at this end has died and must not be notified.
        self.has_vanished = False
        network.channels[self._number] = self

    # -- the seam ------------------------------------------------------------------------------

    @property
    def local(self) -> Address:
        return self._local

    @property
    def peer(self) -> Address:
        return self._peer

    @property
    def host(self) -> str:
        return self._local.host

    @property
    def unsent_bytes(self) -> int:
        return sum(part.size if isinstance(part, FileSlice) else len(part) for part in self._queue)

    def start(self, receiver: Receiver) -> None:
        assert self._receiver is None, "a channel can be started only once"
        self._receiver = receiver
        self.context = contextvars.copy_context()
        self.incoming.deliver_soon()

    def send(self, parts: Sequence[Part]) -> None:
        if self.is_closed or self._is_closing or self.has_vanished:
            return
        for part in parts:
            # Copied like a kernel would, because the caller may reuse its buffers.
            self._queue.append(part if isinstance(part, FileSlice) else bytes(part))
        self._pump()
        self._must_notify_drained = bool(self._queue)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self.incoming.deliver_soon()

    def close(self) -> None:
        if self.is_closed or self._is_closing:
            return
        self._is_closing = True
        self._pump()

    def abort(self) -> None:
        if self.is_closed:
            return
        self._queue.clear()
        self.outgoing.reader.break_soon(ConnectionResetError("the peer aborted"))
        self.close_soon(None)

    # -- moving bytes ----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Moves queued parts to the pipe as far as they fit. A FileSlice is read now, as by
        sendfile."""
        queue = self._queue
        while queue and self.outgoing.free_bytes > 0:
            part = queue.popleft()
            free_bytes = self.outgoing.free_bytes
            if isinstance(part, FileSlice):
                data = part.file.pread(min(free_bytes, part.size), part.position)
                if len(data) < min(free_bytes, part.size):
                    # The file was truncated below the end of the slice.
                    self.break_both(ConnectionResetError("a file slice ends before its size"))
                    return
                rest: Part = FileSlice(part.file, part.position + len(data), part.size - len(data))
                if part.size > len(data):
                    queue.appendleft(rest)
            else:
                data = bytes(part[:free_bytes])
                if len(part) > free_bytes:
                    queue.appendleft(part[free_bytes:])
            if data:
                self.outgoing.push(data)
        if queue:
            return
        if self._must_notify_drained and self._receiver is not None and not self.is_closed:
            self._must_notify_drained = False
            self._as_process(self._receiver.on_drained)
        if self._is_closing and not self.is_closed:
            self.outgoing.end()
            self.close_soon(None)

    def pump_soon(self) -> None:
        if (self._queue or self._is_closing) and not self.is_closed:
            self._as_process(self._pump)

    def receive_soon(self) -> None:
        self._as_process(self._receive)

    def _receive(self) -> None:
        receiver = self._receiver
        if self.is_closed or self.has_vanished or receiver is None:
            return
        buffer = receiver.get_buffer()
        assert len(buffer) > 0, "a receiver provided an empty buffer"
        data = self.incoming.take(len(buffer))
        buffer[: len(data)] = data
        del buffer
        try:
            receiver.on_received(len(data))
        finally:
            self.incoming.release(len(data))

    # -- closing -----------------------------------------------------------------------------------

    def close_soon(self, error: Exception | None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._queue.clear()
        self._network.channels.pop(self._number, None)
        if self._receiver is not None and not self.has_vanished:
            self._as_process(self._receiver.on_closed, error)

    def break_soon(self, error: Exception) -> None:
        """Sends a reset, which a cut link holds back like data."""
        if not self.is_closed and not self.has_vanished:
            network = self._network
            network.loop.call_later_ns(
                network.latency_ns(), self._break, error, context=network.kernel
            )

    def _break(self, error: Exception) -> None:
        if self._network.is_cut(self.incoming.source, self.incoming.target):
            self._held_reset = error
        else:
            self.close_soon(error)

    def on_link_restored(self) -> None:
        self.incoming.deliver_soon()
        error, self._held_reset = self._held_reset, None
        if error is not None:
            self.break_soon(error)

    def break_both(self, error: Exception) -> None:
        self.outgoing.reader.break_soon(error)
        self.close_soon(error)

    def vanish(self, *, silent: bool) -> None:
        self.has_vanished = True
        self._queue.clear()
        self._network.channels.pop(self._number, None)
        if not silent:
            self.outgoing.reader.break_soon(ConnectionResetError("the peer's process died"))
        self.incoming.on_reader_died()

    def _as_process(self, callback: Callable[..., object], *args: object) -> None:
        self._network.loop.call_soon(callback, *args, context=self.context)


class SimulatedListener:
    def __init__(
        self, network: Network, address: Address, on_channel: Callable[[Channel], None]
    ) -> None:
        self._network = network
        self._address = address
        self._on_channel = on_channel
        self._context = contextvars.copy_context()
        self._is_paused = False
        #: Connections opened while the listener was paused.
        self._backlog: list[SimulatedChannel] = []

    @property
    def address(self) -> Address:
        return self._address

    def pause_accepting(self) -> None:
        self._is_paused = True

    def resume_accepting(self) -> None:
        self._is_paused = False
        backlog, self._backlog = self._backlog, []
        for channel in backlog:
            self.accept(channel)

    def accept(self, channel: SimulatedChannel) -> None:
        if self._is_paused:
            self._backlog.append(channel)
            return
        self._network.loop.call_soon(self._on_channel, channel, context=self._context)

    def close(self) -> None:
        key = (self._address.host, self._address.port)
        if self._network.listeners.get(key) is self:
            del self._network.listeners[key]


class SimulatedTransport:
    """The network as seen by a host."""

    def __init__(self, network: Network, host: str) -> None:
        self._network = network
        self._host = host

    async def listen(self, address: Address, on_channel: Callable[[Channel], None]) -> Listener:
        host = self._host if address.host in ANY_HOSTS else address.host
        port = address.port or self._network.next_port()
        if (host, port) in self._network.listeners:
            raise OSError(98, f"{host}:{port} is already in use")
        listener = SimulatedListener(self._network, Address(host, port), on_channel)
        self._network.listeners[host, port] = listener
        return listener

    async def connect(self, address: Address, *, timeout_ms: int) -> Channel:
        network = self._network
        host = self._host if address.host in ANY_HOSTS else address.host
        await asyncio.sleep(2 * network.latency_ns() / 1e9)
        is_unreachable = network.is_down(host) or network.is_cut(self._host, host)
        if is_unreachable or network.is_cut(host, self._host):
            await asyncio.sleep(timeout_ms / 1e3)
            raise TimeoutError(f"no response from {address}")
        listener = network.listeners.get((host, address.port))
        if listener is None:
            raise ConnectionRefusedError(f"{address} refused the connection")
        local = Address(self._host, network.next_port())
        near, far = network.join(local, Address(host, address.port))
        network.loop.trace.event("connect", self._host, host, address.port)
        listener.accept(far)
        return near
