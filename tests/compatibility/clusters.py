"""Starts a cluster of Lograft or of Apache Kafka 4.3.1 nodes, each broker and controller in one.

with Cluster.of("kafka", folder).started() as cluster:
    use(cluster.bootstrap)
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from lograft.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from tests.compatibility.readiness import broker_ids
from tests.compatibility.servers import (
    HOST,
    SMALL_JVM,
    START_SECONDS_MAX,
    Kind,
    Server,
    ServerFailed,
)

NODES: Final = 3
#: Default settings of topics: three replicas, two of them in sync for an acknowledgement.
REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class Place(NamedTuple):
    host: str = HOST
    prefix: tuple[str, ...] = ()


@dataclass
class Cluster:
    kind: Kind
    servers: list[Server]

    @classmethod
    def of(
        cls,
        kind: Kind,
        folder: Path,
        *,
        nodes: int = NODES,
        settings: Mapping[str, str] | None = None,
        jvm: tuple[str, ...] = SMALL_JVM,
        places: Sequence[Place] | None = None,
        first_voter_only: bool = False,
    ) -> "Cluster":
        """`places`: the host of each node; by default all run on this host. `first_voter_only`: the
        first node is the only voter, the others are observers until they are added."""
        servers = [
            Server(
                kind,
                folder / f"node-{node_id}",
                {**REPLICATED, **(settings or {})},
                jvm=jvm,
                node_id=node_id,
                host=place.host,
                prefix=place.prefix,
            )
            for node_id, place in enumerate(places or [Place()] * nodes, start=1)
        ]
        voters = ",".join(f"{server.node_id}@{server.controller}" for server in servers)
        for server in servers:
            if first_voter_only:
                server.quorum_servers = ",".join(each.controller for each in servers)
                server.format_option = (
                    "--standalone" if server is servers[0] else "--no-initial-controllers"
                )
            else:
                server.voters = voters
        return cls(kind, servers)

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.servers)

    def node(self, node_id: int) -> Server:
        return next(server for server in self.servers if server.node_id == node_id)

    def start(self) -> "Cluster":
        """Returns when every node has the metadata of all brokers."""
        for server in self.servers:
            server.launch()
        self.wait_joined()
        return self

    def wait_joined(self) -> None:
        wanted = sorted(server.node_id for server in self.servers if server.process is not None)
        deadline = time.monotonic() + START_SECONDS_MAX
        for server in self.servers:
            while (
                server.process is not None
                and sorted(broker_ids(server.host, server.port)) != wanted
            ):
                if server.has_ended_within(0.02):
                    raise ServerFailed(f"a {self.kind} ended while starting\n{server.log_tail()}")
                if time.monotonic() > deadline:
                    raise ServerFailed(f"{self.kind} did not become a cluster\n{self.log_tail()}")

    def stop(self) -> None:
        """All at the same time: brokers that stop one after another wait for each other's
        partitions."""
        for server in self.servers:
            if server.process is not None:
                server.process.terminate()
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    @contextmanager
    def started(self) -> Iterator["Cluster"]:
        try:
            yield self.start()
            self.stop()
        finally:
            self.kill()

    def log_tail(self) -> str:
        return "\n".join(server.log_tail() for server in self.servers)


def quorum_request() -> DescribeQuorumRequest:
    """Describes the metadata quorum, as reported by any node."""
    topic = DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()]
    )
    return DescribeQuorumRequest(topics=[topic])


def controller_in(answer: DescribeQuorumResponse) -> int:
    return answer.topics[0].partitions[0].leader_id
