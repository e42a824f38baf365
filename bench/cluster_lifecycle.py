"""Measurements that start their own clusters: the start of three nodes, and the loss of a node.

The producer sends one small record at a time to the leader in the metadata. After each error it
requests the metadata from all nodes, so that only the cluster itself delays it.
"""

import signal
import socket
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.frames import produce_error_position, produce_frame, values
from bench.latency import receive_frame
from bench.process import rss_mb
from bench.subject import BenchFailed, Subject, make_cluster
from bench.workloads import Figures, Plan
from lograft.wire.batches import build_batch
from lograft.wire.messages.describe_quorum import DescribeQuorumResponse
from tests.compatibility.clusters import NODES, Cluster, controller_in, quorum_request
from tests.compatibility.servers import HOST, Kind, Server

TOPIC: Final = "first"
SECONDS_MAX: Final = 120.0
ANSWER_SECONDS_MAX: Final = 0.5
STARTS: Final = 3
LOSSES: Final = 5
PARTITIONS_PER_TOPIC: Final = 500


class WaitingProducer:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._subject = Subject(cluster.servers)
        self._topic = topic
        self._frame = produce_frame(topic, 0, build_batch(values(1, 100)), acks=-1)
        self._error_position = produce_error_position(topic)

    def wait_acknowledged(self) -> None:
        deadline = time.perf_counter() + SECONDS_MAX
        while not self._try(self.leader()):
            if time.perf_counter() > deadline:
                raise BenchFailed("no record was acknowledged any more")
            time.sleep(0.005)

    def leader(self) -> Server | None:
        """Returns the leader according to the first node that responds and knows it."""
        for server in self._subject.servers:
            if server.process is None:
                continue
            try:
                known = Subject([server]).leaders(self._topic, seconds_max=ANSWER_SECONDS_MAX)
            except (OSError, ValueError):
                continue
            if known:
                return next(each for each in self._subject.servers if each.node_id == known[0])
        return None

    def _try(self, server: Server | None) -> bool:
        if server is None or server.process is None:
            return False
        try:
            with socket.create_connection((HOST, server.port), ANSWER_SECONDS_MAX) as connection:
                connection.sendall(self._frame)
                answer = receive_frame(connection)
        except OSError:
            return False
        (code,) = struct.unpack_from(">h", answer, self._error_position)
        return bool(code == 0)


def start(kind: Kind, folder: Path, _plan: Plan) -> Figures:
    """Measures the time from the launch of three formatted nodes to the first acknowledgement with
    acks=all."""
    cluster = make_cluster(kind, folder, NODES)
    with cluster.started():
        Subject(cluster.servers).create_topic(TOPIC)
        idle = rss_mb(Subject(cluster.servers).pids)
    seconds = []
    for _time in range(STARTS):
        started = time.perf_counter()
        for server in cluster.servers:
            server.launch()
        WaitingProducer(cluster, TOPIC).wait_acknowledged()
        seconds.append(time.perf_counter() - started)
        cluster.stop()
    return {
        "start_s": statistics.median(seconds),
        "start_s_max": max(seconds),
        "idle_rss_mb": idle,
    }


def leader_killed(kind: Kind, folder: Path, plan: Plan) -> Figures:
    return leader_lost(kind, folder, plan, signal.SIGKILL)


def leader_paused(kind: Kind, folder: Path, plan: Plan) -> Figures:
    return leader_lost(kind, folder, plan, signal.SIGSTOP)


def leader_lost(kind: Kind, folder: Path, plan: Plan, how: signal.Signals) -> Figures:
    """Measures the time from the signal to the next acknowledgement, with default settings."""
    cluster = make_cluster(kind, folder, NODES)
    seconds = []
    with cluster.started():
        Subject(cluster.servers, plan.topic_configs[kind]).create_topic(TOPIC)
        producer = WaitingProducer(cluster, TOPIC)
        for _time in range(min(LOSSES, plan.repetitions + 2)):
            wait_in_sync(cluster, TOPIC)
            producer.wait_acknowledged()
            leader = producer.leader()
            assert leader is not None
            assert leader.process is not None
            started = time.perf_counter()
            leader.process.send_signal(how)
            process, leader.process = leader.process, None
            producer.wait_acknowledged()
            seconds.append(time.perf_counter() - started)
            if how is signal.SIGSTOP:
                process.send_signal(signal.SIGCONT)
                leader.process = process
            else:
                process.wait()
                leader.launch()
            cluster.wait_joined()
    return {"p50_s": statistics.median(seconds), "max_s": max(seconds)}


def wait_in_sync(cluster: Cluster, topic: str) -> None:
    deadline = time.perf_counter() + SECONDS_MAX
    subject = Subject(cluster.servers)
    while time.perf_counter() < deadline:
        partitions = subject.describe(topic).partitions
        if all(len(partition.isr_nodes) == NODES for partition in partitions):
            return
        time.sleep(0.02)
    raise BenchFailed("a replica did not come back into the ISR")


def controller_killed(partitions: int) -> Callable[[Kind, Path, Plan], Figures]:
    """Measures the time from SIGKILL of the active controller to the response to the next
    CreateTopics."""

    def measure(kind: Kind, folder: Path, plan: Plan) -> Figures:
        cluster = make_cluster(kind, folder, NODES)
        seconds = []
        with cluster.started():
            subject = Subject(cluster.servers)
            for number in range(partitions // PARTITIONS_PER_TOPIC):
                subject.create_topic(f"many-{number}", partitions=PARTITIONS_PER_TOPIC)
            for number in range(min(3, plan.repetitions)):
                active = cluster.node(active_controller(cluster))
                assert active.process is not None
                started = time.perf_counter()
                active.kill()
                create_when_possible(cluster, f"after-{number}")
                seconds.append(time.perf_counter() - started)
                active.launch()
                cluster.wait_joined()
        return {"p50_s": statistics.median(seconds), "max_s": max(seconds)}

    return measure


def active_controller(cluster: Cluster) -> int:
    answer = Subject(cluster.servers).ask(quorum_request(), 2, DescribeQuorumResponse)
    return controller_in(answer)


def create_when_possible(cluster: Cluster, topic: str) -> None:
    deadline = time.perf_counter() + SECONDS_MAX
    while time.perf_counter() < deadline:
        try:
            Subject(cluster.servers).create_topic(topic)
        except (BenchFailed, OSError):
            time.sleep(0.005)
        else:
            return
    raise BenchFailed("no topic could be created after the controller was killed")
