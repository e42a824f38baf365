"""Measures how soon a new coordinator serves the offsets of a killed one."""

import statistics
import time
from pathlib import Path
from typing import Final

from bench.cluster_lifecycle import ANSWER_SECONDS_MAX, SECONDS_MAX, wait_in_sync
from bench.subject import GROUP_KEY, BenchFailed, Subject, make_cluster
from bench.workloads import Figures, Plan
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests.compatibility.clusters import NODES
from tests.compatibility.servers import Kind, Server

TOPIC: Final = "positions"
OFFSETS_TOPIC: Final = "__consumer_offsets"
GROUPS: Final = 1000
PARTITIONS: Final = 100
#: All groups have the same coordinator.
SETTINGS: Final = {"offsets.topic.num.partitions": "1"}


def offsets_loaded(kind: Kind, folder: Path, plan: Plan) -> Figures:
    """Measures the time from SIGKILL of the coordinator to the first response of the new
    coordinator, with 100,000 offsets."""
    cluster = make_cluster(kind, folder, NODES, settings=SETTINGS)
    seconds = []
    with cluster.started():
        subject = Subject(cluster.servers)
        subject.create_topic(TOPIC, partitions=PARTITIONS)
        started = time.perf_counter()
        commit_all(subject, subject.wait_coordinator(group_name(0), GROUP_KEY))
        commit_seconds = time.perf_counter() - started
        for _time in range(min(3, plan.repetitions)):
            wait_in_sync(cluster, OFFSETS_TOPIC)
            killed = subject.wait_coordinator(group_name(0), GROUP_KEY)
            started = time.perf_counter()
            killed.kill()
            wait_fetched(subject)
            seconds.append(time.perf_counter() - started)
            check_all(subject.wait_coordinator(group_name(0), GROUP_KEY))
            killed.launch()
            cluster.wait_joined()
    return {
        "loaded_s": statistics.median(seconds),
        "loaded_s_max": max(seconds),
        "commits_per_s": GROUPS * PARTITIONS / commit_seconds,
    }


def group_name(number: int) -> str:
    return f"group-{number:04}"


def commit_all(subject: Subject, server: Server) -> None:
    for number in range(GROUPS):
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=number + index, committed_metadata=""
            )
            for index in range(PARTITIONS)
        ]
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
        request = OffsetCommitRequest(group_id=group_name(number), topics=[topic])
        deadline = time.perf_counter() + SECONDS_MAX
        while True:
            answer = subject.ask(request, 9, OffsetCommitResponse, port=server.port)
            if not any(partition.error_code for partition in answer.topics[0].partitions):
                break
            if time.perf_counter() > deadline:
                raise BenchFailed("offsets were not committed")
            time.sleep(0.02)


def fetch_offsets(server: Server, number: int, *, seconds_max: float) -> dict[int, int] | None:
    """Returns the offsets of the group; None while the server cannot return them."""
    group = OffsetFetchRequestGroup(group_id=group_name(number), topics=None)
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    try:
        answer = Subject([server]).ask(request, 9, OffsetFetchResponse, seconds_max=seconds_max)
    except OSError:
        return None
    (found,) = answer.groups
    if found.error_code:
        return None
    return {
        partition.partition_index: partition.committed_offset
        for topic in found.topics
        for partition in topic.partitions
    }


def wait_fetched(subject: Subject) -> None:
    deadline = time.perf_counter() + SECONDS_MAX
    while time.perf_counter() < deadline:
        server = subject.coordinator(group_name(0), GROUP_KEY, seconds_max=ANSWER_SECONDS_MAX)
        if server is not None and server.process is not None:
            offsets = fetch_offsets(server, GROUPS - 1, seconds_max=SECONDS_MAX)
            if offsets is not None:
                return
        time.sleep(0.005)
    raise BenchFailed("no coordinator gave offsets after the last was killed")


def check_all(server: Server) -> None:
    for number in range(GROUPS):
        offsets = fetch_offsets(server, number, seconds_max=SECONDS_MAX)
        if offsets != {index: number + index for index in range(PARTITIONS)}:
            raise BenchFailed(f"the offsets of {group_name(number)} are not those committed")
