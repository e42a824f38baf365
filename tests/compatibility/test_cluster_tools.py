"""Kafka 4.3.1's own tools and librdkafka on three nodes, Lograft's and Apache Kafka's."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.compatibility import conftest
from tests.compatibility.clusters import NODES, Cluster
from tests.compatibility.java_tools import PATIENCE_SECONDS, JavaTools, eventually
from tests.compatibility.librdkafka import create_topic, produce, read, values_of
from tests.compatibility.servers import Kind, kinds_under_test

pytestmark = pytest.mark.interop
NewName = Callable[[], str]
NODE_IDS = [1, 2, 3]


@pytest.fixture(scope="module", params=kinds_under_test())
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    kind = cast(Kind, request.param)
    cluster = Cluster.of(kind, tmp_path_factory.mktemp(f"{kind}-cluster"), nodes=NODES)
    conftest.running.extend(cluster.servers)
    with cluster.started():
        yield cluster
    for server in cluster.servers:
        conftest.running.remove(server)


def to(cluster: Cluster) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


def partitions_of(described: str) -> list[dict[str, str]]:
    """The indented lines of TopicCommand --describe."""
    return [
        dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part)
        for line in described.splitlines()
        if line.startswith("\tTopic: ")
    ]


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def describe(cluster: Cluster, java_tools: JavaTools, topic: str) -> list[dict[str, str]]:
    described = java_tools.check("TopicCommand", *to(cluster), "--describe", "--topic", topic)
    return partitions_of(described.text)


def test_replicas_are_spread_and_in_sync(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(cluster.bootstrap, topic, partitions=6, replication_factor=3)
    partitions = describe(cluster, java_tools, topic)
    assert len(partitions) == 6
    for partition in partitions:
        assert sorted(numbers(partition["Replicas"])) == NODE_IDS
        assert sorted(numbers(partition["Isr"])) == NODE_IDS
        assert numbers(partition["Replicas"])[0] == int(partition["Leader"])
    assert {int(partition["Leader"]) for partition in partitions} == set(NODE_IDS)


def test_every_node_takes_every_request(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName
) -> None:
    """Two of the three are not the active controller: they forward requests that only it can
    process."""
    for server in cluster.servers:
        topic, address = new_topic(), ("--bootstrap-server", server.bootstrap)
        java_tools.check(
            "TopicCommand", *address, "--create", "--topic", topic, "--replication-factor", "2"
        )
        again = java_tools.run("TopicCommand", *address, "--create", "--topic", topic)
        assert f"Topic '{topic}' already exists." in again.text
        entity = (*address, "--entity-type", "topics", "--entity-name", topic)
        java_tools.check("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=99999")
        shown = java_tools.check("ConfigCommand", *entity, "--describe").text
        assert "retention.ms=99999" in shown
        java_tools.check("TopicCommand", *address, "--delete", "--topic", topic)


def test_quorum_is_described(cluster: Cluster, java_tools: JavaTools) -> None:
    ask = ("MetadataQuorumCommand", *to(cluster), "describe")
    status = java_tools.check(*ask, "--status").text
    leader = next(line for line in status.splitlines() if line.startswith("LeaderId:"))
    assert int(leader.split()[1]) in NODE_IDS
    replication = java_tools.check(*ask, "--replication").lines[1:]
    roles = {int(line.split()[0]): line.split()[-1] for line in replication if line.strip()}
    assert sorted(roles) == NODE_IDS
    assert sorted(roles.values()) == ["Follower", "Follower", "Leader"]


def test_cluster_tool(cluster: Cluster, java_tools: JavaTools) -> None:
    assert java_tools.check("ClusterTool", "cluster-id", *to(cluster)).text.startswith("Cluster ID")
    ends = java_tools.check("ClusterTool", "list-endpoints", *to(cluster)).text
    for server in cluster.servers:
        assert str(server.port) in ends


def test_reassignment_copies_and_moves(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName, tmp_path: Path
) -> None:
    topic = new_topic()
    java_tools.check(
        "TopicCommand", *to(cluster), "--create", "--topic", topic, "--replica-assignment", "1,2"
    )
    sent = [b"%d" % number for number in range(2000)]
    produce(cluster.bootstrap, topic, sent[:1000], partition=0)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {"topic": topic, "partition": 0, "replicas": [3, 2]},
                    {"topic": topic, "partition": 1, "replicas": [2, 3, 1]},
                ],
            }
        )
    )
    order = ("ReassignPartitionsCommand", *to(cluster), "--reassignment-json-file", str(plan))
    java_tools.check(*order, "--execute")
    produce(cluster.bootstrap, topic, sent[1000:], partition=0)
    done = eventually(
        lambda: java_tools.run(*order, "--verify"), lambda text: "is still in progress" not in text
    )
    assert done.count("is completed") == 2, done
    first, second = describe(cluster, java_tools, topic)
    assert numbers(first["Replicas"]) == [3, 2]
    assert numbers(second["Replicas"]) == [2, 3, 1]
    assert values_of(read(cluster.bootstrap, topic, partition=0)) == sent


def test_preferred_leader_election(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName, tmp_path: Path
) -> None:
    topic = new_topic()
    java_tools.check(
        "TopicCommand", *to(cluster), "--create", "--topic", topic, "--replica-assignment", "1:2:3"
    )
    plan = tmp_path / "plan.json"
    other = {"topic": topic, "partition": 0, "replicas": [2, 1, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [other]}))
    order = ("ReassignPartitionsCommand", *to(cluster), "--reassignment-json-file", str(plan))
    java_tools.check(*order, "--execute")
    eventually(
        lambda: java_tools.run(*order, "--verify"), lambda text: "is still in progress" not in text
    )
    elected = java_tools.check(
        "LeaderElectionCommand",
        *to(cluster),
        "--election-type",
        "preferred",
        "--topic",
        topic,
        "--partition",
        "0",
    )
    assert "Successfully completed leader election" in elected.text or (
        "Valid replica already elected" in elected.text
    )
    (partition,) = describe(cluster, java_tools, topic)
    assert int(partition["Leader"]) == 2


def test_a_killed_leader_costs_nothing(
    cluster: Cluster, java_tools: JavaTools, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(cluster.bootstrap, topic, replication_factor=3)
    sent = [b"%d" % number for number in range(3000)]
    produce(cluster.bootstrap, topic, sent[:1500])
    (before,) = describe(cluster, java_tools, topic)
    victim = cluster.node(int(before["Leader"]))
    victim.kill()
    produce(cluster.bootstrap, topic, sent[1500:])
    others = [server for server in cluster.servers if server is not victim]
    bootstrap = ",".join(server.bootstrap for server in others)
    assert values_of(read(bootstrap, topic)) == sent
    victim.launch()
    cluster.wait_joined()
    ask = ("TopicCommand", *to(cluster), "--describe", "--topic", topic)

    def is_in_sync(text: str) -> bool:
        return all(len(numbers(partition["Isr"])) == NODES for partition in partitions_of(text))

    assert is_in_sync(eventually(lambda: java_tools.check(*ask), is_in_sync))


def test_the_shell_reads_the_metadata_of_a_cluster(
    cluster: Cluster, java_tools: JavaTools, tmp_path: Path
) -> None:
    """A copy, because the shell locks the folder that it reads."""
    log = cluster.servers[0].data / "__cluster_metadata-0" / f"{0:020}.log"
    copied = tmp_path / log.name
    shutil.copyfile(log, copied)
    shown = java_tools.run_alone(
        "MetadataShell", "--snapshot", str(copied), "ls", "/image/cluster/brokers"
    )
    for node_id in NODE_IDS:
        assert str(node_id) in shown.text.split(), shown.text


@pytest.mark.parametrize("kind", kinds_under_test())
def test_controllers_join_and_leave(kind: Kind, java_tools: JavaTools, tmp_path: Path) -> None:
    cluster = Cluster.of(kind, tmp_path, first_voter_only=True)
    conftest.running.extend(cluster.servers)
    try:
        with cluster.started():
            join_and_leave(cluster, java_tools)
    finally:
        for server in cluster.servers:
            conftest.running.remove(server)


def join_and_leave(cluster: Cluster, java_tools: JavaTools) -> None:
    ask = ("MetadataQuorumCommand", *to(cluster), "describe", "--replication")

    def roles() -> dict[int, str]:
        rows = [line.split() for line in java_tools.check(*ask).lines if line.strip()]
        # The tool may log a warning before the table.
        header = next(number for number, row in enumerate(rows) if row[0] == "NodeId")
        return {int(row[0]): row[-1] for row in rows[header + 1 :]}

    assert roles() == {1: "Leader", 2: "Observer", 3: "Observer"}
    for server in cluster.servers[1:]:
        config = ("--command-config", str(server.properties_path))
        java_tools.check("MetadataQuorumCommand", *config, *to(cluster), "add-controller")
    assert roles() == {1: "Leader", 2: "Follower", 3: "Follower"}
    # The quorum tolerates the loss of its first voter.
    cluster.servers[0].kill()
    others = ("--bootstrap-server", ",".join(each.bootstrap for each in cluster.servers[1:]))
    create = ("--create", "--topic", "after", "--replication-factor", "2")
    java_tools.check("TopicCommand", *others, *create)
    cluster.servers[0].launch()
    cluster.wait_joined()
    directory = next(
        line.partition("=")[2]
        for line in (cluster.servers[2].data / "meta.properties").read_text().splitlines()
        if line.startswith("directory.id=")
    )
    leave = ("remove-controller", "--controller-id", "3", "--controller-directory-id", directory)
    # If it leads the quorum, the response may be lost together with its leadership.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while roles()[3] != "Observer":
        assert time.monotonic() < deadline, "controller 3 is still a voter"
        java_tools.run("MetadataQuorumCommand", *to(cluster), *leave)
