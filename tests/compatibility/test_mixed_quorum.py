"""Nodes of Lograft and Apache Kafka in one cluster: their controllers vote for each other and
follow each other, and a Lograft broker works with a Kafka controller."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.client import NewTopic
from lograft.client.blocking import Admin, Producer
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.describe_quorum import DescribeQuorumResponsePartitionData
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Kind, Server, kinds_under_test
from tests.unit.cli.test_cluster_processes import quorum

KINDS: tuple[Kind, ...] = ("lograft", "lograft", "kafka")
KAFKA_ID = 3
TIMEOUT_S = 60


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[list[Server]]:
    servers = [
        Server(kind, tmp_path / f"node-{node_id}", node_id=node_id)
        for node_id, kind in enumerate(KINDS, start=1)
    ]
    for server in servers:
        server.voters = ",".join(f"{each.node_id}@{each.controller}" for each in servers)
        server.settings = {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{server.controller}",
            "advertised.listeners": f"CONTROLLER://{server.controller}",
        }
        server.launch()
    yield servers
    for server in servers:
        server.kill()


def leaders_view(servers: list[Server]) -> DescribeQuorumResponsePartitionData | None:
    """Returns the quorum as described by the leader; None if there is no leader now."""
    for server in servers:
        try:
            seen = asyncio.run(quorum(server.controller_port))
        except (PeerLost, PeerUnreachable):
            continue
        if not seen.error_code and seen.leader_id == server.node_id and seen.high_watermark > 0:
            return seen
    return None


def wait_leader(
    servers: list[Server], is_met: Callable[[DescribeQuorumResponsePartitionData], bool]
) -> DescribeQuorumResponsePartitionData:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        seen = leaders_view(servers)
        if seen is not None and is_met(seen):
            return seen
        time.sleep(0.1)
    pytest.fail("\n".join(server.log_tail() for server in servers))


def all_follow(seen: DescribeQuorumResponsePartitionData) -> bool:
    ends = [each.log_end_offset for each in seen.current_voters]
    return len(ends) == 3 and min(ends) >= seen.high_watermark - 1


def any_leader(seen: DescribeQuorumResponsePartitionData) -> bool:
    return True


@pytest.mark.skipif("kafka" not in kinds_under_test(), reason="LOGRAFT_TEST_SERVERS=both")
def test_lograft_and_kafka_lead_and_follow_each_other(controllers: list[Server]) -> None:
    seen = wait_leader(controllers, all_follow)
    led: list[int] = []
    # Leaders cannot be chosen; Kafka's controller and the other ones are elected eventually.
    for _ in range(8):
        led.append(seen.leader_id)
        if KAFKA_ID in led and led[-1] != KAFKA_ID:
            break
        old = controllers[seen.leader_id - 1]
        old.kill()
        # Any two of three are a majority.
        wait_leader([controller for controller in controllers if controller is not old], any_leader)
        old.launch()
        seen = wait_leader(controllers, all_follow)
    assert KAFKA_ID in led, led
    assert {1, 2} & set(led), led


def raise_kraft_version(leader: Server) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        timeout_ms=10_000,
        feature_updates=[
            FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        ],
    )
    with connect(leader, port=leader.controller_port) as connection:
        answer = ask(connection, request, 2)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


def has_directories(seen: DescribeQuorumResponsePartitionData) -> bool:
    return all_follow(seen) and all(
        voter.replica_directory_id != ZERO_UUID for voter in seen.current_voters
    )


@pytest.mark.skipif("kafka" not in kinds_under_test(), reason="LOGRAFT_TEST_SERVERS=both")
@pytest.mark.parametrize("kind", ["kafka", "lograft"])
def test_both_raise_kraft_version_with_voters_of_both(
    controllers: list[Server], kind: Kind
) -> None:
    seen = wait_leader(controllers, all_follow)
    for _ in range(8):
        leader = controllers[seen.leader_id - 1]
        if leader.kind == kind:
            break
        leader.kill()
        wait_leader([each for each in controllers if each is not leader], any_leader)
        leader.launch()
        seen = wait_leader(controllers, all_follow)
    assert leader.kind == kind
    assert not has_directories(seen)
    # A voter sends UpdateRaftVoter to a new leader within a fetch timeout.
    deadline = time.monotonic() + TIMEOUT_S
    while (answer := raise_kraft_version(leader)).error_code:
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)
    seen = wait_leader(controllers, has_directories)
    # Every log contains the voter set, whichever node leads next, even with
    # controller.quorum.voters in the file.
    for controller in controllers:
        controller.kill()
    for controller in controllers:
        controller.launch()
    again = wait_leader(controllers, has_directories)
    directories = [
        {voter.replica_id: voter.replica_directory_id for voter in each.current_voters}
        for each in (seen, again)
    ]
    assert directories[0] == directories[1]


@pytest.mark.skipif("kafka" not in kinds_under_test(), reason="LOGRAFT_TEST_SERVERS=both")
def test_a_broker_works_with_a_kafka_controller(new_server: Callable[..., Server]) -> None:
    """A broker must support all finalized features, so those of share and streams groups are
    disabled."""
    controller, broker = new_server("kafka"), new_server("lograft")
    controller.node_id = KAFKA_ID
    for server in (controller, broker):
        server.voters = f"{KAFKA_ID}@{controller.controller}"
    controller.settings |= {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{controller.controller}",
        "advertised.listeners": f"CONTROLLER://{controller.controller}",
    }
    features = (("--feature", f"{name}.version=0") for name in ("share", "streams"))
    controller.format_arguments = tuple(word for feature in features for word in feature)
    broker.settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{broker.bootstrap}"}
    controller.launch()
    try:
        with broker.started(), Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("orders")])
            with Producer(bootstrap_servers=broker.bootstrap) as producer:
                assert producer.send("orders", b"tea").offset == 0
            quorum = admin.describe_quorum()
            assert quorum.leader == KAFKA_ID
            assert [replica.node for replica in quorum.observers] == [broker.node_id]
    finally:
        controller.kill()
