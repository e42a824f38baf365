"""Measures the end-to-end latency of single messages: from send until a waiting consumer has it."""

import select
import socket
import struct
import time
from typing import Any, Final
from uuid import UUID

from bench.frames import FetchFrame, last_offset_in, produce_frame, values
from lograft.wire.batches import build_batch
from tests.compatibility.readiness import receive_exactly

WAIT_MS: Final = 10_000
#: Messages at the start that are not measured: new connections make them slower.
SKIPPED: Final = 50
PARKING_SECONDS: Final = 0.0005


def measure_latency(order: dict[str, Any]) -> dict[str, float]:
    (port,), topic = order["ports"], order["topic"]
    frame = produce_frame(topic, 0, build_batch(values(1, order["value_bytes"])), acks=-1)
    fetch = FetchFrame.of(UUID(order["topic_id"]), 0, bytes_max=1 << 20, wait_ms=WAIT_MS)
    producer, consumer = connect(port), connect(port)
    times_ms: list[float] = []
    offset = order["offset"]
    deadline = time.perf_counter() + order["seconds"]
    while time.perf_counter() < deadline or len(times_ms) <= SKIPPED:
        offset = park(consumer, fetch, offset)
        started = time.perf_counter()
        producer.sendall(frame)
        answer = receive_frame(consumer)
        times_ms.append((time.perf_counter() - started) * 1000)
        offset = last_offset_in(memoryview(answer)) + 1
        receive_frame(producer)
    counted = sorted(times_ms[SKIPPED:])
    return {
        "messages": len(times_ms),
        "p50_ms": percentile(counted, 0.5),
        "p99_ms": percentile(counted, 0.99),
        "p999_ms": percentile(counted, 0.999),
        "max_ms": counted[-1],
    }


def park(consumer: socket.socket, fetch: FetchFrame, offset: int) -> int:
    """Waits until the server has received the fetch, so that it is waiting when the message
    arrives. Skips the control records that replication writes. Returns the offset at which the
    fetch waits."""
    while True:
        consumer.sendall(fetch.at(offset))
        readable, _, _ = select.select([consumer], [], [], PARKING_SECONDS)
        if not readable:
            return offset
        offset = max(offset, last_offset_in(memoryview(receive_frame(consumer))) + 1)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, size)


def percentile(ordered: list[float], fraction: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]
