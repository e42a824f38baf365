"""Measurements that need their own servers: start, memory when idle, and a thousand partitions."""

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.frames import PRODUCE_VERSION, produce_error_position, produce_frame, values
from bench.latency import receive_frame
from bench.process import CpuMeter, rss_mb
from bench.subject import BenchFailed, Subject, make_server
from bench.workloads import Figures, Plan
from lograft.wire.batches import build_batch
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compatibility.servers import HOST, Kind

STARTS: Final = 5
PARTITIONS: Final = 1000
PARTITIONS_PER_REQUEST: Final = 100
TOPIC: Final = "first"
START_SECONDS_MAX: Final = 60.0


def start(kind: Kind, folder: Path, _plan: Plan) -> Figures:
    """Measures the time from the launch to the first acknowledgement. The data directory is
    formatted, and the topic exists."""
    server = make_server(kind, folder)
    with server.started():
        Subject([server]).create_topic(TOPIC)
        idle = rss_mb([server.pid])
    seconds = []
    for _time in range(STARTS):
        seconds.append(seconds_to_first_ack(server.launch, server.port))
        server.stop()
    seconds.sort()
    return {"start_s": seconds[len(seconds) // 2], "start_s_max": seconds[-1], "idle_rss_mb": idle}


def seconds_to_first_ack(launch: Callable[[], None], port: int) -> float:
    frame = produce_frame(TOPIC, 0, build_batch(values(1, 100)), acks=-1)
    error_position = produce_error_position(TOPIC)
    started = time.perf_counter()
    launch()
    while time.perf_counter() - started < START_SECONDS_MAX:
        try:
            with socket.create_connection((HOST, port), 5) as connection:
                connection.sendall(frame)
                answer = receive_frame(connection)
            if answer[error_position : error_position + 2] == b"\0\0":
                return time.perf_counter() - started
        except OSError:
            pass
        time.sleep(0.002)
    raise BenchFailed("no acknowledgement after the start")


def thousand_partitions(kind: Kind, folder: Path, plan: Plan) -> Figures:
    server = make_server(kind, folder)
    figures: Figures = {}
    with server.started():
        subject = Subject([server])
        started = time.perf_counter()
        subject.create_topic("many", partitions=PARTITIONS)
        produce_to_all(server.port, range(PARTITIONS))
        figures["create_and_first_produce_s"] = time.perf_counter() - started
        started = time.perf_counter()
        produce_to_all(server.port, range(PARTITIONS))
        figures["produce_to_all_s"] = time.perf_counter() - started
        time.sleep(min(plan.idle_seconds, 5))
        cpu = CpuMeter(subject.pids)
        time.sleep(plan.idle_seconds)
        figures["idle_cpu_percent"] = cpu.read() / plan.idle_seconds * 100
        figures["rss_mb"] = rss_mb(subject.pids)
    started = time.perf_counter()
    server.launch()
    produce_to_all(server.port, range(PARTITIONS))
    figures["restart_s"] = time.perf_counter() - started
    server.stop()
    return figures


def produce_to_all(port: int, partitions: Sequence[int]) -> None:
    """Sends a small record to each partition; retries until the server leads all of them."""
    batch = build_batch(values(1, 100))
    for first in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        chunk = partitions[first : first + PARTITIONS_PER_REQUEST]
        data = [PartitionProduceData(index=index, records=batch) for index in chunk]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="many", partition_data=data)],
        )
        frame = frame_request(request, PRODUCE_VERSION, correlation_id=1, client_id="bench")
        deadline = time.perf_counter() + START_SECONDS_MAX
        while not all_taken(port, frame):
            if time.perf_counter() > deadline:
                raise BenchFailed("a thousand partitions did not all take a record")
            time.sleep(0.002)


def all_taken(port: int, frame: bytes) -> bool:
    try:
        with socket.create_connection((HOST, port), 10) as connection:
            connection.sendall(frame)
            answer = receive_frame(connection)
    except OSError:
        return False
    response = read_all(ProduceResponse, PRODUCE_VERSION, answer, 5)
    return all(
        not part.error_code for topic in response.responses for part in topic.partition_responses
    )
