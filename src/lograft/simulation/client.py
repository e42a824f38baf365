"""A small Kafka client over the simulated network: one connection, many requests in flight.

It never retries: what to do about an unknown outcome is the workload's decision, and the history
has to know of it.
"""

import asyncio
from typing import Final, TypeVar

from lograft.model.seams import Address, Channel, Transport
from lograft.wire.apis import response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.frames import FrameBuffer
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)

FRAME_BYTES_MAX: Final = 100 << 20


class NotSent(Exception):
    """The request never left: it certainly did not happen."""


class OutcomeUnknown(Exception):
    """The request left, and no answer came."""


class SimulatedClient:
    def __init__(self, transport: Transport, address: Address, *, client_id: str) -> None:
        self._transport = transport
        self._address = address
        self._client_id = client_id
        self._connection: _Connection | None = None
        self._correlation_id = 0

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        connection = await self._connected(timeout_ms)
        self._correlation_id += 1
        number = self._correlation_id
        frame = frame_request(message, version, correlation_id=number, client_id=self._client_id)
        waiting = connection.send(number, frame)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                data = await waiting
        except TimeoutError:
            # As real clients do: an answer that comes later could be taken for another's.
            self.disconnect()
            raise OutcomeUnknown("no answer in time") from None
        except ConnectionError as error:
            raise OutcomeUnknown(str(error)) from None
        assert response_class(message.KEY) is answer, (message, answer)
        header_version = response_header_version(message.KEY, version)
        _, position = read_response_header(data, header_version)
        return read_all(answer, version, data, position)

    async def _connected(self, timeout_ms: int) -> "_Connection":
        connection = self._connection
        if connection is None or connection.is_closed:
            try:
                channel = await self._transport.connect(self._address, timeout_ms=timeout_ms)
            except OSError as error:
                raise NotSent(str(error)) from None
            connection = self._connection = _Connection(channel)
        return connection

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


class _Connection:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self.is_closed = False
        channel.start(self)

    def send(self, number: int, frame: bytes) -> asyncio.Future[bytes]:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._channel.send([frame])
        return waiting

    def abort(self) -> None:
        self.is_closed = True
        self._channel.abort()

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        for frame in self._frames.received(count):
            data = bytes(frame)
            waiting = self._waiting.pop(int.from_bytes(data[:4], "big"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(data)

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError(f"connection lost: {error}"))
