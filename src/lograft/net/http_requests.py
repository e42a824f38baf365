"""HTTP requests of a node to other services, such as an identity provider.

One request for each connection, over the Transport seam. The response is bounded in size and the
whole request in time. Redirects are not followed: the server that answers is the one that was
configured. No error contains a part of the response.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import h11

from lograft.model.seams import Address, Channel, Transport

READ_BYTES: Final = 16 << 10
HEADER_BYTES_MAX: Final = 32 << 10


class HttpFailed(Exception):
    """The service failed to respond, or responded unexpectedly. The message contains no part of its
    response."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        #: The status of the response; None if there is no response.
        self.status = status


class HttpRequest(NamedTuple):
    address: Address
    #: Path and query.
    target: str
    method: str = "GET"
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


async def fetch(
    transport: Transport, request: HttpRequest, *, bytes_max: int, timeout_ms: int
) -> bytes:
    """Returns the body of the response. Raises HttpFailed unless its status is 200."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            channel = await transport.connect(request.address, timeout_ms=timeout_ms)
            try:
                return await _exchange(channel, request, bytes_max)
            finally:
                channel.abort()
    except TimeoutError:
        raise HttpFailed(f"{request.address} did not answer within {timeout_ms} ms") from None
    except OSError as error:
        raise HttpFailed(f"{request.address} is not reachable: {error}") from None


async def _exchange(channel: Channel, request: HttpRequest, bytes_max: int) -> bytes:
    receiver = _Receiver(bytes_max)
    channel.start(receiver)
    parser = receiver.parser
    host = str(request.address)
    head = h11.Request(
        method=request.method,
        target=request.target,
        headers=[
            ("Host", host),
            ("Connection", "close"),
            ("Accept-Encoding", "identity"),
            *request.headers,
            *([("Content-Length", str(len(request.body)))] if request.body else []),
        ],
    )
    parts = [parser.send(head)]
    if request.body:
        parts.append(parser.send(h11.Data(data=request.body)))
    parts.append(parser.send(h11.EndOfMessage()))
    channel.send([part for part in parts if part])
    return await receiver.body


class _Receiver:
    """Collects one response."""

    def __init__(self, bytes_max: int) -> None:
        self.parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADER_BYTES_MAX)
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._bytes_max = bytes_max
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._received = bytearray()

    def get_buffer(self) -> memoryview:
        return self._buffer

    def on_received(self, count: int) -> None:
        self._parse(bytes(self._buffer[:count]))

    def on_drained(self) -> None:
        pass

    def on_closed(self, error: Exception | None) -> None:
        if error is None:
            self._parse(b"")
        self._fail("the connection was closed" if error is None else f"{error}")

    def _parse(self, data: bytes) -> None:
        if self.body.done():
            return
        try:
            self.parser.receive_data(data)
            while not self.body.done():
                event = self.parser.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._handle(event)
        except h11.RemoteProtocolError:
            self._fail("the response is not HTTP, or is incomplete")

    def _handle(self, event: object) -> None:
        match event:
            case h11.Response(status_code=status) if status != 200:
                hint = ": redirects are not followed" if 300 <= status < 400 else ""
                self._fail(f"the status of the response is {status}{hint}", status)
            case h11.Data(data=data):
                if len(self._received) + len(data) > self._bytes_max:
                    self._fail(f"the response has more than {self._bytes_max} bytes")
                else:
                    self._received += data
            case h11.EndOfMessage():
                self.body.set_result(bytes(self._received))
            case h11.ConnectionClosed():
                self._fail("the connection was closed")
            case _:
                pass

    def _fail(self, reason: str, status: int | None = None) -> None:
        if not self.body.done():
            self.body.set_exception(HttpFailed(reason, status))
