"""The client side of a connection: sends requests, and passes responses to their handlers.

A server responds to the requests of a connection in order, but this code does not depend on it:
responses are matched by correlation id. Handles frames, not messages.
"""

from typing import Protocol

from lograft.model.seams import Address, Buffer, Channel
from lograft.wire.errors import FrameTooLarge
from lograft.wire.frames import FrameBuffer


class ResponseHandler(Protocol):
    """Handles one response; called once, with the frame or with the reason why there is none."""

    def on_frame(self, frame: memoryview) -> None:
        """The frame is invalid after the call."""

    def on_lost(self, reason: str) -> None: ...


class ClientConnection:
    """The Receiver of a channel to a server."""

    def __init__(self, channel: Channel, address: Address, *, frame_bytes_max: int) -> None:
        self._channel = channel
        self.address = address
        self._frames = FrameBuffer(frame_bytes_max)
        self._waiting: dict[int, ResponseHandler] = {}
        self.is_closed = False
        #: Reads and writes.
        self.operations = 0
        channel.start(self)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def send(self, number: int, parts: list[Buffer], handler: ResponseHandler) -> None:
        """Sends a request; `number` is its correlation id."""
        self._waiting[number] = handler
        self.operations += 1
        self._channel.send(parts)

    def send_only(self, parts: list[Buffer]) -> None:
        """Sends a request without a response (acks=0)."""
        self.operations += 1
        self._channel.send(parts)

    def forget(self, number: int) -> None:
        """Drops the response when it arrives, because nothing waits for it anymore."""
        self._waiting.pop(number, None)

    @property
    def unsent_bytes(self) -> int:
        return self._channel.unsent_bytes

    def abort(self, reason: str = "closed") -> None:
        if not self.is_closed:
            self._channel.abort()
            self._end(reason)

    # Receiver of the channel.

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        self.operations += 1
        try:
            for frame in self._frames.add_received(count):
                handler = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
                if handler is not None:
                    handler.on_frame(frame)
        except FrameTooLarge as error:
            self.abort(str(error))

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self._end("closed by the peer" if error is None else str(error))

    def _end(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for handler in waiting.values():
            handler.on_lost(reason)
