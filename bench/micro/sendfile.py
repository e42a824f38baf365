"""Measures the kernel's share of consuming: a plain sendfile loop as the lower bound for any
server.

    python -m bench.micro.sendfile

One thread responds on two connections with slices of a file, 1 MiB for each small request, with
epoll and non-blocking sendfile, and does nothing else. The reader is the pump of the benchmark.
"""

import multiprocessing
import os
import select
import socket
import tempfile
from pathlib import Path
from typing import Final

from bench.pump import pump

CONNECTIONS: Final = 2
FILE_BYTES: Final = 1 << 30
SLICE_BYTES: Final = 1 << 20
REQUEST: Final = bytes(80)
ROUNDS: Final = 3
SECONDS: Final = 3.0
GIGABYTE: Final = 1e9
#: Kafka's default for socket.send.buffer.bytes, a buffer for a whole response, the kernel's
#: default.
SEND_BUFFERS: Final = (102_400, 4 << 20, 0)


class Reader:
    def __init__(self) -> None:
        self.received = 0

    def next_frame(self) -> bytes:
        return REQUEST

    def on_response(self, response: memoryview) -> None:
        self.received += len(response)


class Served:
    """The rest of a connection's response."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.position = self.left = 0

    def answer(self, file: int) -> bool:
        """Returns whether the whole response has been sent."""
        try:
            while self.left:
                sent = os.sendfile(self.socket.fileno(), file, self.position, self.left)
                self.position += sent
                self.left -= sent
        except BlockingIOError:
            return False
        return True


def serve(listener: socket.socket, path: str, reports: "multiprocessing.Queue[float]") -> None:
    file = os.open(path, os.O_RDONLY)
    epoll = select.epoll()
    served = {}
    for _ in range(CONNECTIONS):
        connection = Served(listener.accept()[0])
        served[connection.socket.fileno()] = connection
        epoll.register(connection.socket.fileno(), select.EPOLLIN)
    head = (SLICE_BYTES).to_bytes(4, "big")
    before = os.times()
    while served:
        for descriptor, events in epoll.poll():
            connection = served[descriptor]
            if events & select.EPOLLIN:
                if not connection.socket.recv(len(REQUEST)):
                    epoll.unregister(descriptor)
                    del served[descriptor]
                    continue
                connection.socket.send(head, socket.MSG_MORE)
                connection.left = SLICE_BYTES
                connection.position %= FILE_BYTES
            wanted = select.EPOLLIN if connection.answer(file) else select.EPOLLOUT
            if wanted != events:
                epoll.modify(descriptor, wanted)
    after = os.times()
    reports.put(after.user - before.user)
    reports.put(after.system - before.system)


def measure(path: str, send_buffer: int) -> str:
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    reports: multiprocessing.Queue[float] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(listener, path, reports))
    server.start()
    readers = [Reader() for _ in range(CONNECTIONS)]
    port = listener.getsockname()[1]
    seconds = pump([port] * CONNECTIONS, readers, in_flight=1, seconds=SECONDS)
    received = sum(reader.received for reader in readers)
    user, system = (reports.get() / received * GIGABYTE for _ in range(2))
    server.join()
    rate = received / seconds / 1e6
    return f"{user + system:.3f} CPU-s/GB ({system:.3f} in the kernel), {rate:,.0f} MB/s"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        with path.open("wb") as file:
            for _ in range(FILE_BYTES // SLICE_BYTES):
                file.write(os.urandom(SLICE_BYTES))
        for _ in range(ROUNDS):
            for send_buffer in SEND_BUFFERS:
                name = f"{send_buffer:,} bytes" if send_buffer else "the kernel's choice"
                print(f"send buffer {name:20} {measure(str(path), send_buffer)}", flush=True)


if __name__ == "__main__":
    main()
