"""Three Lograft nodes as processes, and three controllers with separate brokers: requests to any
broker, a killed controller, killed and stopped brokers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compatibility.clusters import REPLICATED, Cluster
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.readiness import broker_ids
from tests.compatibility.servers import Server

pytestmark = pytest.mark.interop
#: A loaded machine may need this long for an operation that takes milliseconds on an idle one; no
#: timeout may expire in it.
SOON_SECONDS = 4.0
#: The default of broker.session.timeout.ms.
SESSION_SECONDS = 9.0
NewName = Callable[[], str]


def roles_apart(folder: Path) -> Cluster:
    """Controllers 1 to 3, brokers 4 to 6."""
    servers = []
    for node_id in range(1, 7):
        role = "controller" if node_id <= 3 else "broker"
        server = Server("lograft", folder / f"node-{node_id}", dict(REPLICATED), node_id=node_id)
        own = f"CONTROLLER://{server.controller}" if role == "controller" else ""
        listener = own or f"PLAINTEXT://{server.bootstrap}"
        server.settings |= {
            "process.roles": role,
            "listeners": listener,
            "advertised.listeners": listener,
        }
        servers.append(server)
    voters = ",".join(f"{each.node_id}@{each.controller}" for each in servers[:3])
    for server in servers:
        server.voters = voters
    return Cluster("lograft", servers)


@pytest.fixture(params=["combined", "apart"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    cluster = (
        Cluster.of("lograft", tmp_path) if request.param == "combined" else roles_apart(tmp_path)
    )
    try:
        for server in cluster.servers:
            server.launch()
        yield cluster
    finally:
        cluster.kill()


def brokers_of(cluster: Cluster) -> list[Server]:
    return [
        server for server in cluster.servers if server.settings.get("process.roles") != "controller"
    ]


def wait_brokers(at: Server, node_ids: list[int], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while sorted(broker_ids(at.host, at.port)) != node_ids:
        assert time.monotonic() < deadline, (broker_ids(at.host, at.port), at.log_tail())
        time.sleep(0.005)


def test_a_cluster_outlives_the_loss_of_each_of_its_nodes(cluster: Cluster) -> None:
    brokers = brokers_of(cluster)
    ids = sorted(each.node_id for each in brokers)
    for broker in brokers:
        wait_brokers(broker, ids)
    for broker in brokers:
        create_topic(broker.bootstrap, f"at-{broker.node_id}", replication_factor=3)
    for server in cluster.servers:
        others = [each for each in brokers if each is not server]
        server.kill()
        left = [each.node_id for each in others]
        wait_brokers(others[0], sorted(left), seconds=SOON_SECONDS)
        create_topic(others[0].bootstrap, f"after-kill-{server.node_id}", replication_factor=2)
        server.launch()
        wait_brokers(others[0], ids)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < SESSION_SECONDS
        wait_brokers(others[-1], sorted(left), seconds=SOON_SECONDS)
        create_topic(others[-1].bootstrap, f"after-stop-{server.node_id}", replication_factor=2)
        server.launch()
        for other in others:
            wait_brokers(other, ids)
    cluster.stop()
    for server in cluster.servers:
        assert "Traceback" not in server.log_path.read_text()
