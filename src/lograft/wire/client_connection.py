"""The asking end of one connection: requests out, answers told to whoever waits for them.

A server answers the requests of a connection in order, but nothing here relies on it: answers are
matched by their correlation ids. Knows frames, not messages.
"""

from typing import Protocol

from lograft.model.seams import Address, Buffer, Channel
from lograft.wire.errors import FrameTooLarge
from lograft.wire.frames import FrameBuffer


class Waiter(Protocol):
    """Of one answer; called once, with the frame or with what went wrong."""

    def on_frame(self, frame: memoryview) -> None:
        """The frame is void after the call."""

    def on_lost(self, reason: str) -> None: ...


class ClientConnection:
    """A Receiver over a channel."""

    def __init__(self, channel: Channel, address: Address, *, frame_bytes_max: int) -> None:
        self._channel = channel
        self.address = address
        self._frames = FrameBuffer(frame_bytes_max)
        self._waiting: dict[int, Waiter] = {}
        self.is_closed = False
        channel.start(self)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def ask(self, number: int, parts: list[Buffer], waiter: Waiter) -> None:
        """`number` is the correlation id that the request carries."""
        self._waiting[number] = waiter
        self._channel.send(parts)

    def post(self, parts: list[Buffer]) -> None:
        """A request without an answer (acks=0)."""
        self._channel.send(parts)

    def forget(self, number: int) -> None:
        """Nobody waits for that answer any more; it is dropped when it comes."""
        self._waiting.pop(number, None)

    @property
    def unsent_bytes(self) -> int:
        return self._channel.unsent_bytes

    def abort(self, reason: str = "closed") -> None:
        if not self.is_closed:
            self._channel.abort()
            self._end(reason)

    # The receiver of the channel below.

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        try:
            for frame in self._frames.received(count):
                waiter = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
                if waiter is not None:
                    waiter.on_frame(frame)
        except FrameTooLarge as error:
            self.abort(str(error))

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self._end("closed by the other side" if error is None else str(error))

    def _end(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            waiter.on_lost(reason)
