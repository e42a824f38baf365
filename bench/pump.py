"""Keeps several requests in flight on several connections, from one thread.

A Source supplies the next request and reads each response; the pump does the rest with epoll.
"""

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final, Protocol

RECEIVE_BYTES: Final = 4 << 20
SIZE_BYTES: Final = 4


class Source(Protocol):
    """The requests of one connection."""

    def next_frame(self) -> bytes | None:
        """Returns None if there is nothing more to send."""

    def on_response(self, response: memoryview) -> None:
        """Called for each response in order; the bytes are valid only during the call."""


class Line:
    """One connection and its source."""

    __slots__ = ("_buffer", "_filled", "_outgoing", "_source", "in_flight", "socket")

    def __init__(self, port: int, source: Source) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.in_flight = 0
        self._source = source
        self._outgoing: list[memoryview] = []
        self._buffer = bytearray(RECEIVE_BYTES)
        self._filled = 0

    def fill(self, in_flight_max: int) -> None:
        while self.in_flight < in_flight_max:
            frame = self._source.next_frame()
            if frame is None:
                break
            self._outgoing.append(memoryview(frame))
            self.in_flight += 1

    def send(self) -> bool:
        """Returns whether the kernel has not accepted all bytes yet."""
        while self._outgoing:
            try:
                sent = self.socket.sendmsg(self._outgoing[:64])
            except BlockingIOError:
                return True
            while sent:
                first = self._outgoing[0]
                if sent < len(first):
                    self._outgoing[0] = first[sent:]
                    break
                sent -= len(first)
                del self._outgoing[0]
        return False

    def receive(self) -> int:
        """The number of responses."""
        buffer = self._buffer
        try:
            count = self.socket.recv_into(memoryview(buffer)[self._filled :])
        except BlockingIOError:
            return 0
        if count == 0:
            raise ConnectionError("the server closed the connection")
        self._filled += count
        answers = position = 0
        while self._filled - position >= SIZE_BYTES:
            (size,) = struct.unpack_from(">i", buffer, position)
            end = position + SIZE_BYTES + size
            if end > self._filled:
                if SIZE_BYTES + size > len(buffer):
                    self._buffer = bytearray(SIZE_BYTES + size) if position == 0 else buffer
                    self._buffer[: self._filled] = buffer[: self._filled]
                break
            self._source.on_response(memoryview(buffer)[position + SIZE_BYTES : end])
            answers += 1
            position = end
        if position:
            self._buffer[: self._filled - position] = buffer[position : self._filled]
            self._filled -= position
        self.in_flight -= answers
        return answers


def pump(
    ports: Sequence[int], sources: Sequence[Source], *, in_flight: int, seconds: float
) -> float:
    """Runs for a time, or until the sources have no more requests; then waits for the last
    responses."""
    selector = selectors.DefaultSelector()
    lines = [Line(port, source) for port, source in zip(ports, sources, strict=True)]
    for line in lines:
        selector.register(line.socket, selectors.EVENT_READ, line)
    started = time.perf_counter()
    deadline = started + seconds
    for line in lines:
        line.fill(in_flight)
        watch(selector, line, line.send())
    while any(line.in_flight for line in lines):
        for key, events in selector.select(10):
            line = key.data
            if events & selectors.EVENT_READ and line.receive() and time.perf_counter() < deadline:
                line.fill(in_flight)
            watch(selector, line, line.send())
    elapsed = time.perf_counter() - started
    selector.close()
    for line in lines:
        line.socket.close()
    return elapsed


def watch(selector: selectors.BaseSelector, line: Line, has_more: bool) -> None:
    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if has_more else 0)
    if selector.get_key(line.socket).events != wanted:
        selector.modify(line.socket, wanted, line)
