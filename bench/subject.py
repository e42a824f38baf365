"""The server under test, one node or a cluster: its topics, ids and orders for the load
generator."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from bench.latency import receive_frame
from lograft.wire.apis import response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lograft.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.compatibility.clusters import Cluster
from tests.compatibility.servers import HOST, SERVER_JVM, Kind, Server
from tools.kafka_jars import REPOSITORY

M = TypeVar("M", bound=Message)
ANSWER_SECONDS_MAX: Final = 120
LATEST: Final = -1
#: The key type of FindCoordinator.
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
#: Retention deletes old segments soon, so that new segments use the same memory again. A virtual
#: machine pays more for memory that it has not used yet than for the rest of a Produce
#: (docs/decisions/0006).
TOPIC_CONFIGS: Final = {
    "segment.bytes": str(64 << 20),
    "retention.bytes": str(64 << 20),
    "file.delete.delay.ms": "1000",
}
SETTINGS: Final = {
    "log.retention.check.interval.ms": "1000",
    "num.network.threads": "3",
    "num.io.threads": "8",
}
#: For topics with much data, so that retention deletes it soon.
BUSY_SETTINGS: Final = {"log.retention.check.interval.ms": "200"}


class BenchFailed(Exception):
    """A server or a load failed to do what the benchmark requires."""


def make_server(kind: Kind, folder: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    server = Server.of(kind, folder, settings={**SETTINGS, **(settings or {})})
    server.jvm = SERVER_JVM
    return server


def make_cluster(
    kind: Kind, folder: Path, nodes: int, *, settings: Mapping[str, str] | None = None
) -> Cluster:
    all_settings = {**SETTINGS, **(settings or {})}
    return Cluster.of(kind, folder, nodes=nodes, settings=all_settings, jvm=SERVER_JVM)


@dataclass(slots=True)
class Subject:
    """Each topic has a replica on every node, at most three."""

    servers: Sequence[Server]
    #: Settings of every topic that a workload creates.
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.servers[0].kind

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers if server.process is not None]

    @property
    def replication_factor(self) -> int:
        return min(3, len(self.servers))

    def spread(self, partitions: int) -> int:
        """Returns this number of partitions, rounded up so that every node can lead the same
        number."""
        return -(-partitions // len(self.servers)) * len(self.servers)

    def port_of(self, node_id: int) -> int:
        return next(server.port for server in self.servers if server.node_id == node_id)

    def ask(
        self,
        request: Message,
        version: int,
        answer: type[M],
        *,
        seconds_max: float = ANSWER_SECONDS_MAX,
        port: int = 0,
    ) -> M:
        assert response_class(request.KEY) is answer
        port = port or next(server.port for server in self.servers if server.process is not None)
        with socket.create_connection((HOST, port), seconds_max) as connection:
            connection.sendall(frame_request(request, version, correlation_id=1, client_id="bench"))
            data = receive_frame(connection)
        header_version = response_header_version(request.KEY, version)
        _correlation_id, position = read_response_header(data, header_version)
        return read_all(answer, version, data, position)

    def create_topic(self, name: str, *, partitions: int = 1, **configs: str) -> UUID:
        settings = {**TOPIC_CONFIGS, **self.topic_configs}
        settings |= {key.replace("_", "."): value for key, value in configs.items()}
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=self.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        (created,) = self.ask(request, 7, CreateTopicsResponse).topics
        if created.error_code:
            raise BenchFailed(f"{self.name} did not create {name}: {created.error_message}")
        while len(self.leaders(name)) < partitions:
            time.sleep(0.001)  # brokers apply the record a moment after the controller
        return created.topic_id

    def leaders(self, topic: str, *, seconds_max: float = ANSWER_SECONDS_MAX) -> list[int]:
        """Returns the leader of each partition; an empty list until every partition has a
        leader."""
        partitions = self.describe(topic, seconds_max=seconds_max).partitions
        found = {partition.partition_index: partition.leader_id for partition in partitions}
        return [] if -1 in found.values() else [found[index] for index in sorted(found)]

    def describe(
        self, topic: str, *, seconds_max: float = ANSWER_SECONDS_MAX
    ) -> MetadataResponseTopic:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        (described,) = self.ask(request, 12, MetadataResponse, seconds_max=seconds_max).topics
        return described

    def end_offset(self, topic: str) -> int:
        """Returns the end offset of the first partition, once its leader knows it. In a new
        replicated topic it may be above 0, because of control records."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        while True:
            leader = self.port_of(self.leaders(topic)[0])
            (answer,) = self.ask(request, 7, ListOffsetsResponse, port=leader).topics[0].partitions
            if not answer.error_code:
                return answer.offset
            time.sleep(0.001)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)
        self.ask(request, 6, DeleteTopicsResponse)

    def producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        return self.ask(request, 4, InitProducerIdResponse).producer_id

    def coordinator(self, key: str, key_type: int, *, seconds_max: float) -> Server | None:
        """Returns the coordinator of the key, according to the first node that responds and knows
        it."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        for server in self.servers:
            if server.process is None:
                continue
            try:
                answer = self.ask(
                    request, 4, FindCoordinatorResponse, seconds_max=seconds_max, port=server.port
                )
            except OSError:
                continue
            (found,) = answer.coordinators
            if not found.error_code:
                return next(each for each in self.servers if each.node_id == found.node_id)
        return None

    def wait_coordinator(self, key: str, key_type: int) -> Server:
        deadline = time.perf_counter() + ANSWER_SECONDS_MAX
        while time.perf_counter() < deadline:
            found = self.coordinator(key, key_type, seconds_max=1)
            if found is not None and found.process is not None:
                return found
            time.sleep(0.005)
        raise BenchFailed("no coordinator was found")

    def start_load(self, load: str, *, topic: str, **order: Any) -> subprocess.Popen[str]:
        ports = [self.port_of(leader) for leader in self.leaders(topic)]
        spec = json.dumps({"load": load, "topic": topic, "ports": ports, **order})
        return subprocess.Popen(
            [sys.executable, "-m", "bench.generator", spec],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def run_load(self, load: str, *, topic: str, **order: Any) -> dict[str, float]:
        return result_of(self.start_load(load, topic=topic, **order))


def result_of(load: subprocess.Popen[str]) -> dict[str, float]:
    output, _nothing = load.communicate()
    if load.returncode != 0:
        raise BenchFailed(f"a load ended with {load.returncode}")
    answer: dict[str, float] = json.loads(output)
    return answer
