"""Measures the network path alone: frames into a file, slices of a file, small requests.

    python bench/micro/net_path.py [--gigabytes 2] [--loop fastest|asyncio]

The server is a separate process whose handler does almost nothing. The client has blocking sockets
and encoded frames. The figures are CPU seconds of the *server* per gigabyte, and microseconds of
its CPU per small request: wall time means little on a shared machine.
"""

import argparse
import asyncio
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Final

from lograft.model.exchange import EncodedResponse, FrameHandler, Reply
from lograft.model.seams import Address, Channel, File, FileSlice
from lograft.net.connection_limits import ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.server import Server
from lograft.net.sockets import SocketTransport
from lograft.runtime.disk import RealDisk
from lograft.runtime.event_loop import fastest_loop_factory
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers

BATCH_BYTES: Final = 1 << 20
#: The server overwrites the file from here, so that the benchmark fits into the page cache.
FILE_BYTES_MAX: Final = 512 << 20
IN_FLIGHT: Final = 5
SMALL_BYTES: Final = 200
ACK: Final = (8).to_bytes(4, "big") + bytes(8)


class BenchHandler:
    """Discards, sends or echoes, depending on the first byte of the frame."""

    def __init__(self, file: File, fetch_bytes: int) -> None:
        self.frame_bytes_max = 100 << 20
        self.received_ns = 0
        self._file = file
        self._fetched = EncodedResponse(
            [(fetch_bytes + 8).to_bytes(4, "big") + bytes(8), FileSlice(file, 0, fetch_bytes)]
        )
        self._ack = EncodedResponse([ACK])

    def handle_frame(self, frame: memoryview) -> Reply:
        kind = frame[0]
        if kind == ord("p"):
            if self._file.size > FILE_BYTES_MAX:
                self._file.truncate(0)
            self._file.append(frame)
            return self._ack
        return self._fetched if kind == ord("f") else self._ack

    def on_frames_handled(self) -> None:
        pass

    def on_closed(self) -> None:
        pass


def serve(pipe: Pipe, path: str, fetch_bytes: int, loop_name: str) -> None:
    async def main() -> None:
        file = RealDisk().open(path, create=True)
        file.append(bytes(fetch_bytes))

        def make_handler(channel: Channel) -> FrameHandler:
            return BenchHandler(file, fetch_bytes)

        async with asyncio.TaskGroup() as group:
            server = Server(
                "BENCH",
                make_handler,
                runtime=system_runtime(
                    transport=SocketTransport(), workers=ThreadWorkers(), task_group=group
                ),
                quota=ConnectionQuota(),
                budget=FrameBudget(),
            )
            await server.start(Address("127.0.0.1", 0))
            server.serve()
            pipe.send(server.address.port)
            loop = asyncio.get_running_loop()
            asked = asyncio.Event()
            loop.add_reader(pipe.fileno(), asked.set)
            while True:
                await asked.wait()
                asked.clear()
                # The loop may have called the callback twice for one message.
                if not pipe.poll():
                    continue
                if pipe.recv() == "stop":
                    break
                times = os.times()
                pipe.send((times.user + times.system, times.user, times.system))
            loop.remove_reader(pipe.fileno())
            await server.stop()

    factory = asyncio.new_event_loop if loop_name == "asyncio" else fastest_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def exchange(port: int, request: bytes, answer_bytes: int, count: int) -> None:
    """Sends the request `count` times with several in flight, and reads the responses."""
    window = threading.Semaphore(IN_FLIGHT)
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> None:
            for _ in range(count):
                window.acquire()
                stream.sendall(request)

        sender = threading.Thread(target=send)
        sender.start()
        buffer = memoryview(bytearray(max(answer_bytes, 1 << 20)))
        for _ in range(count):
            left = answer_bytes
            while left:
                left -= stream.recv_into(buffer, left)
            window.release()
        sender.join()


def measure(pipe: Pipe, work: Callable[[], None]) -> tuple[float, float, float, float]:
    """CPU seconds of the server (total, user, system) and wall seconds."""
    pipe.send("times")
    before = pipe.recv()
    began = time.perf_counter()
    work()
    wall = time.perf_counter() - began
    pipe.send("times")
    after = pipe.recv()
    return after[0] - before[0], after[1] - before[1], after[2] - before[2], wall


def build_frame(kind: bytes, size: int) -> bytes:
    return size.to_bytes(4, "big") + kind + bytes(size - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--loop", choices=["fastest", "asyncio"], default="fastest")
    options = parser.parse_args()
    count = int(options.gigabytes * 1e9 / BATCH_BYTES)
    gigabytes = count * BATCH_BYTES / 1e9
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "segment")
        server = multiprocessing.Process(
            target=serve, args=(theirs, path, BATCH_BYTES, options.loop)
        )
        server.start()
        port = ours.recv()
        produce, fetch, small = (
            build_frame(b"p", BATCH_BYTES),
            build_frame(b"f", 100),
            build_frame(b"e", SMALL_BYTES),
        )
        for name, work, divisor, unit in (
            (
                "fetch 1 MiB",
                lambda: exchange(port, fetch, BATCH_BYTES + 12, count),
                gigabytes,
                "/GB",
            ),
            ("produce 1 MiB", lambda: exchange(port, produce, 12, count), gigabytes, "/GB"),
            (
                "produce 16 KiB",
                lambda: exchange(port, build_frame(b"p", 16 << 10), 12, count * 16),
                gigabytes / 4,
                "/GB",
            ),
            ("small, 5 under way", lambda: exchange(port, small, 12, 100_000), 0.1, "/M"),
        ):
            cpu, user, system, wall = measure(ours, work)
            print(
                f"{name:20} {cpu / divisor:6.2f} CPU-s{unit:4}"
                f" (user {user / divisor:.2f}, system {system / divisor:.2f})"
                f"  {divisor / wall:6.2f} {unit[1:]}/s"
            )
        ours.send("stop")
        server.join()


if __name__ == "__main__":
    main()
