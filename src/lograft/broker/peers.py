"""Requests from node to node over the Transport seam.

One connection for each (listener, address, lane). A server answers the requests of a connection in
order, so whoever asks long polls does so in a lane of its own.

Never retries: what to do about an unknown outcome is the caller's decision.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.model.seams import Address, Channel, Runtime, Transport
from lograft.wire.apis import response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.errors import FrameTooLarge, WireError
from lograft.wire.frames import FrameBuffer
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)

FRAME_BYTES_MAX: Final = 100 << 20
#: Requests of one connection that wait for their answers.
IN_FLIGHT_MAX: Final = 1_000


class LaneKey(NamedTuple):
    listener: str
    address: Address
    lane: str


class Peers:
    """The other nodes as one node reaches them; one object per node."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        client_id: str,
        transport_of: Callable[[str], Transport] | None = None,
    ) -> None:
        """`transport_of` gives the transport for the other side's listener, by name: some listeners
        speak TLS."""
        self._runtime = runtime
        self._client_id = client_id
        self._transport_of = transport_of
        self._lanes: dict[LaneKey, Lane] = {}
        self._is_closed = False

    async def request(
        self,
        to: Address,
        message: Message,
        version: int,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        listener: str = "",
    ) -> R:
        """Raises PeerUnreachable if the request was never sent, PeerLost if no answer came. Records
        in the answer are views of its own bytes."""
        key = LaneKey(listener, to, lane)
        found = self._lane(key)
        try:
            return await found.request(message, version, answer, timeout_ms=timeout_ms)
        finally:
            self._forget_if_idle(key, found)

    async def knock(
        self, to: Address, *, timeout_ms: int, lane: str = "", listener: str = ""
    ) -> None:
        """Connects if the lane is not, and asks nothing. Raises PeerUnreachable."""
        key = LaneKey(listener, to, lane)
        found = self._lane(key)
        try:
            await found.knock(timeout_ms)
        finally:
            self._forget_if_idle(key, found)

    def _lane(self, key: LaneKey) -> "Lane":
        if self._is_closed:
            raise PeerUnreachable(key.address, "this node is stopping", refused=False)
        found = self._lanes.get(key)
        if found is None:
            transport = (
                self._runtime.transport
                if self._transport_of is None
                else self._transport_of(key.listener)
            )
            found = self._lanes[key] = Lane(transport, key.address, client_id=self._client_id)
        return found

    def _forget_if_idle(self, key: LaneKey, lane: "Lane") -> None:
        """Addresses come and go with the nodes that had them."""
        if lane.is_idle and self._lanes.get(key) is lane:
            del self._lanes[key]

    def close(self) -> None:
        """Whoever waits for an answer gets PeerLost."""
        self._is_closed = True
        for lane in list(self._lanes.values()):
            lane.disconnect()
        self._lanes.clear()

    def statistics(self) -> dict[str, int]:
        return {"peer_connections": len(self._lanes)}


class Lane:
    """One connection to one address, made when it is needed."""

    def __init__(self, transport: Transport, address: Address, *, client_id: str) -> None:
        self._transport = transport
        self._address = address
        self._client_id = client_id
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._users = 0
        self._correlation_id = 0

    @property
    def is_idle(self) -> bool:
        """Not connected, and nobody tries to be."""
        connection = self._connection
        return not self._users and (connection is None or connection.is_closed)

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        assert response_class(message.KEY) is answer, (message, answer)
        sent_on: _Connection | None = None
        self._users += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                sent_on = await self._connected(timeout_ms)
                self._correlation_id = number = (self._correlation_id + 1) & 0x7FFF_FFFF
                frame = frame_request(
                    message, version, correlation_id=number, client_id=self._client_id
                )
                data = await sent_on.send(number, frame)
        except TimeoutError:
            if sent_on is None:
                raise PeerUnreachable(self._address, "no connection in time") from None
            # The answers behind this one would be late too.
            sent_on.abort()
            raise PeerLost(f"{self._address} gave no answer within {timeout_ms} ms") from None
        finally:
            self._users -= 1
        try:
            header_version = response_header_version(message.KEY, version)
            _, position = read_response_header(data, header_version)
            return read_all(answer, version, data, position)
        except WireError as error:
            sent_on.abort()
            raise PeerLost(f"{self._address} gave an answer that cannot be read: {error}") from None

    async def knock(self, timeout_ms: int) -> None:
        self._users += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected(timeout_ms)
        except TimeoutError:
            raise PeerUnreachable(self._address, "no connection in time") from None
        finally:
            self._users -= 1

    async def _connected(self, timeout_ms: int) -> "_Connection":
        async with self._connecting:
            connection = self._connection
            if connection is None or connection.is_closed:
                try:
                    channel = await self._transport.connect(self._address, timeout_ms=timeout_ms)
                except ConnectionRefusedError:
                    raise PeerUnreachable(
                        self._address, "nobody listens there", refused=True
                    ) from None
                except OSError as error:
                    raise PeerUnreachable(self._address, str(error)) from None
                connection = self._connection = _Connection(channel, self._address)
            if connection.in_flight >= IN_FLIGHT_MAX:
                raise PeerUnreachable(self._address, "too many requests wait for their answers")
            return connection

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


class _Connection:
    def __init__(self, channel: Channel, address: Address) -> None:
        self._channel = channel
        self._address = address
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self.is_closed = False
        channel.start(self)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def send(self, number: int, frame: bytes) -> bytes:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            self._channel.send([frame])
            return await waiting
        finally:
            self._waiting.pop(number, None)

    def abort(self) -> None:
        if not self.is_closed:
            self._channel.abort()
            self.on_closed(None)

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        try:
            for frame in self._frames.received(count):
                waiting = self._waiting.get(int.from_bytes(frame[:4], "big"))
                # Nobody waits: whoever did was cancelled.
                if waiting is not None and not waiting.done():
                    waiting.set_result(bytes(frame))
        except FrameTooLarge:
            self.abort()

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                reason = "closed" if error is None else str(error)
                future.set_exception(PeerLost(f"connection to {self._address} lost: {reason}"))
