"""A connection over a channel of the test, with a handler that executes commands in its frames."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply, Reply, Timing
from lograft.model.seams import Address, FileSlice, Part, Receiver
from lograft.net.closed_connections import ClosedConnections
from lograft.net.connection import Connection, FlowLimits
from lograft.net.frame_memory import FrameBudget
from lograft.net.repeated_warnings import RepeatedWarnings
from lograft.runtime.tasks import GroupSpawn
from tests.support.clocks import FakeClock


class FakeChannel:
    """Receives bytes with `deliver`; sent bytes accumulate unless `takes_all`."""

    def __init__(self) -> None:
        self.local = Address("here", 1)
        self.peer = Address("there", 2)
        self.sent = bytearray()
        self.sends = 0
        self.unsent_bytes = 0
        self.takes_all = True
        self.reading = True
        self.closed = False
        self.receiver: Receiver | None = None
        self._arrived = bytearray()

    def start(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, parts: Sequence[Part]) -> None:
        if self.closed:
            return
        self.sends += 1
        for part in parts:
            assert not isinstance(part, FileSlice)
            self.sent += part
            if not self.takes_all:
                self.unsent_bytes += len(part)

    def drain(self) -> None:
        assert self.receiver is not None
        self.unsent_bytes = 0
        self.receiver.on_drained()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        if self._arrived:
            asyncio.get_running_loop().call_soon(self._deliver_pending)

    def close(self) -> None:
        self.end(None)

    def abort(self) -> None:
        self.end(None)

    def end(self, error: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            assert self.receiver is not None
            asyncio.get_running_loop().call_soon(self.receiver.on_closed, error)

    def deliver(self, data: bytes, *, chunk: int = 1 << 30) -> None:
        self._arrived += data
        self._deliver_pending(chunk)

    def _deliver_pending(self, chunk: int = 1 << 30) -> None:
        assert self.receiver is not None
        while self._arrived and self.reading and not self.closed:
            buffer = self.receiver.get_buffer()
            count = min(len(buffer), len(self._arrived), chunk)
            buffer[:count] = self._arrived[:count]
            del self._arrived[:count]
            self.receiver.on_received(count)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Script:
    """A handler that executes its frames: the first byte is the command."""

    def __init__(self) -> None:
        self.frame_bytes_max = 1 << 20
        self.received_ns = 0
        self.timing: Timing | None = None
        self.handled: list[bytes] = []
        self.gates: dict[bytes, asyncio.Future[None]] = {}
        self.cancelled: list[bytes] = []
        self.closed = 0

    def handle_frame(self, frame: memoryview) -> Reply:
        assert not frame.readonly
        body = bytes(frame)
        self.handled.append(body)
        command = body[:1]
        if command == b"n":
            return None
        if command == b"x":
            raise CloseConnection("nonsense\r\nfrom client")
        if command == b"!":
            raise RuntimeError("a bug")
        if command == b"m":
            return EncodedResponse([framed(body)], mute_ms=20)
        if command == b"e":
            return EncodedResponse([framed(body)], closes=True)
        if command in (b"w", b"p", b"N", b"E"):
            return PendingReply(self._later(body), allows_pipelining=command == b"p")
        return EncodedResponse([framed(body)], timing=self.timing)

    async def _later(self, body: bytes) -> EncodedResponse | None:
        gate = self.gates[body] = asyncio.get_running_loop().create_future()
        try:
            await gate
        except asyncio.CancelledError:
            self.cancelled.append(body)
            raise
        if body[:1] == b"N":
            return None
        return EncodedResponse([framed(body)], closes=body[:1] == b"E")

    def on_frames_handled(self) -> None:
        pass

    def on_closed(self) -> None:
        self.closed += 1


class Setting:
    def __init__(self, group: asyncio.TaskGroup, limits: FlowLimits, budget: FrameBudget) -> None:
        self.channel = FakeChannel()
        self.handler = Script()
        self.clock = FakeClock()
        self.ended: list[Connection] = []
        self.closed = ClosedConnections()
        self.connection = Connection(
            self.channel,
            self.handler,
            name="PLAINTEXT",
            clock=self.clock,
            spawn=GroupSpawn(group),
            limits=limits,
            budget=budget,
            on_ended=self.ended.append,
            warnings=RepeatedWarnings(logging.getLogger("lograft.net.connection"), self.clock),
            closed=self.closed,
        )
        self.connection.start()

    def deliver(self, *bodies: bytes) -> None:
        self.channel.deliver(b"".join(map(framed, bodies)))

    async def open(self, body: bytes) -> None:
        """Completes the waiting request, once it waits."""
        while body not in self.handler.gates:
            await asyncio.sleep(0)
        self.handler.gates[body].set_result(None)
        await settle()

    def reads(self) -> bool:
        return self.channel.reading

    @property
    def responses(self) -> list[bytes]:
        sent, found = bytes(self.channel.sent), []
        while sent:
            size = int.from_bytes(sent[:4], "big")
            found.append(sent[4 : 4 + size])
            sent = sent[4 + size :]
        return found


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def setting(
    limits: FlowLimits | None = None, budget: FrameBudget | None = None
) -> AsyncIterator[Setting]:
    async with asyncio.TaskGroup() as group:
        setup = Setting(group, limits or FlowLimits(), budget or FrameBudget())
        yield setup
        setup.connection.close()
        await settle()
        assert setup.ended == [setup.connection]
        assert setup.handler.closed == 1
