"""Runs thousands of clients, with one connection and one request in flight each, on one thread.

A Peer supplies a frame when it is due, and returns after each response when the next one is. Frames
are encoded when something changes, not when they are sent, so that a heartbeat costs the swarm only
two system calls.
"""

import heapq
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Final, Protocol

from bench.latency import connect

RECEIVE_BYTES: Final = 1 << 20
SIZE_BYTES: Final = 4
#: No frame is due until the peer is woken.
NEVER: Final = float("inf")


class Peer(Protocol):
    #: The frame to send when it is due.
    frame: bytes

    def on_response(self, response: memoryview) -> float:
        """Returns the seconds until the next frame, or NEVER. The bytes are valid only during the
        call."""


class Swarm:
    """Runs peers until a condition holds; their connections stay open between two runs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._peers: dict[int, Peer] = {}
        self._partial: dict[int, bytearray] = {}
        self._due: list[tuple[float, int]] = []
        self._sent_at: dict[int, float] = {}
        self._buffer = bytearray(RECEIVE_BYTES)
        self.answers = 0
        #: The latency of each response since the list was last cleared; None: not recorded.
        self.waits: list[float] | None = None

    def add(self, peer: Peer, *, delay: float = 0.0) -> None:
        connection = connect(self._port)
        handle = connection.fileno()
        self._sockets[handle] = connection
        self._peers[handle] = peer
        self._poll.register(handle, select.EPOLLIN)
        heapq.heappush(self._due, (time.perf_counter() + delay, handle))

    def run(self, is_done: Callable[[], bool], *, seconds_max: float) -> bool:
        """Returns whether the condition held in time. It is evaluated between two rounds of
        responses."""
        deadline = time.perf_counter() + seconds_max
        while not is_done():
            now = time.perf_counter()
            if now > deadline:
                return False
            due = self._due
            while due and due[0][0] <= now:
                handle = heapq.heappop(due)[1]
                self._sent_at[handle] = now
                self._sockets[handle].sendall(self._peers[handle].frame)
            until = min(deadline, due[0][0]) if due else deadline
            for handle, _events in self._poll.poll(max(0.0, until - time.perf_counter())):
                self._receive(handle)
        return True

    def _receive(self, handle: int) -> None:
        count = self._sockets[handle].recv_into(self._buffer)
        if count == 0:
            raise ConnectionError("the server closed the connection")
        received = memoryview(self._buffer)[:count]
        partial = self._partial.pop(handle, None)
        if partial is not None:
            partial += received
            received = memoryview(partial)
        whole = SIZE_BYTES + struct.unpack_from(">i", received)[0] if len(received) >= 4 else 4
        if len(received) < whole:
            self._partial[handle] = bytearray(received)
            return
        assert len(received) == whole, "one request in flight has one answer"
        self.answers += 1
        now = time.perf_counter()
        if self.waits is not None:
            self.waits.append(now - self._sent_at[handle])
        delay = self._peers[handle].on_response(received[SIZE_BYTES:])
        if delay != NEVER:
            heapq.heappush(self._due, (now + delay, handle))

    def close(self) -> None:
        self._poll.close()
        for connection in self._sockets.values():
            connection.close()
