"""Group ids of share and streams groups: clients and commands reject them with the reason."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from lograft.cli.main import main
from lograft.client.blocking import Admin, Consumer, Producer
from lograft.client.errors import BrokerError, ClientError, WrongUse
from lograft.client.group_types import explain_other_type
from lograft.client.types import TopicPartition
from lograft.coordination.types import CoordinatorResult, Record
from lograft.node import Node
from lograft.testing import Cluster
from lograft.wire.messages.list_groups import ListGroupsResponse
from tests.unit.coordination.test_unsupported_groups import share_records, streams_records

FULL = TopicPartition("full", 0)
UNSERVED = "it is a {} group, which this release does not support: use another group id"


@dataclass
class CommandResult:
    code: int
    out: str
    err: str


class Commands:
    """Runs commands in this process, against a cluster with groups of every type."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CommandResult:
        argv, sys.argv = sys.argv, ["lograft", *arguments, "--bootstrap-server", self.servers]
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            sys.argv = argv
        shown = self._capsys.readouterr()
        code = ended.value.code
        return CommandResult(code if isinstance(code, int) else 0, shown.out, shown.err)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("full")
        cluster.create_topic("empty")
        servers = cluster.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("full", b"one")
        with Admin(bootstrap_servers=servers) as admin:
            admin.alter_group_offsets("mine", {FULL: 0})
            admin.alter_group_offsets("streams", {FULL: 0})
        write_group(cluster, "share", share_records("share", "m"))
        write_group(cluster, "share-empty", share_records("share-empty"))
        write_group(cluster, "streams", streams_records("streams", "m"))
        yield cluster


def write_group(cluster: Cluster, group_id: str, records: list[Record]) -> None:
    """Writes the records of a group as Kafka writes them."""

    def write(node: Node) -> None:
        node.broker.groups.ask_now(
            group_id,
            lambda _, ticket, __: CoordinatorResult(
                records=records, replies=[(ticket, ListGroupsResponse())]
            ),
        )

    cluster.call(1, write)


@pytest.fixture
def lograft(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster, capsys)


@pytest.mark.parametrize("group", ["share", "share-empty", "streams"])
@pytest.mark.parametrize("topic", ["full", "empty"])
@pytest.mark.parametrize("start", [(), ("--from", "beginning")])
def test_consume_checks_the_group_before_it_fetches(
    lograft: Commands, group: str, topic: str, start: tuple[str, ...]
) -> None:
    shown = lograft("consume", topic, "--group", group, "--max", "1", *start)
    assert shown.out == ""
    assert UNSERVED.format(group.removesuffix("-empty")) in shown.err
    assert f"group '{group}'" in shown.err
    assert shown.code != 0


def test_consume_reads_with_a_consumer_group(lograft: Commands) -> None:
    shown = lograft("consume", "full", "--group", "mine", "--max", "1")
    assert "one" in shown.out
    assert shown.code == 0


@pytest.mark.parametrize("seeks", [False, True])
def test_consumer_with_assigned_partitions_gets_no_records(cluster: Cluster, seeks: bool) -> None:
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="share", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([FULL])
        if seeks:
            consumer.seek(FULL, 0)
        with pytest.raises(BrokerError, match=UNSERVED.format("share")):
            consumer.poll(timeout_ms=10_000)


def test_commit_error_contains_the_group_type(cluster: Cluster) -> None:
    with (
        Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="share") as consumer,
        pytest.raises(BrokerError, match=r"not a consumer group .*GROUP_ID_NOT_FOUND"),
    ):
        consumer.commit({FULL: 1})


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("classic", UNSERVED.format("streams")),
        ("consumer", "Group streams is not a consumer group"),
    ],
)
def test_join_error_contains_the_group_type(cluster: Cluster, protocol: str, reason: str) -> None:
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="streams", group_protocol=protocol
    ) as consumer:
        consumer.subscribe(["full"])
        with pytest.raises(ClientError, match=reason):
            consumer.poll(timeout_ms=10_000)


def test_join_error_for_different_assignors(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    with (
        Consumer(
            bootstrap_servers=servers, group_id="pair", partition_assignment_strategy="range"
        ) as first,
        Consumer(
            bootstrap_servers=servers, group_id="pair", partition_assignment_strategy="roundrobin"
        ) as second,
    ):
        first.subscribe(["full"])
        first.poll(timeout_ms=10_000)
        second.subscribe(["full"])
        with pytest.raises(BrokerError, match="no assignor in common"):
            second.poll(timeout_ms=10_000)


def test_groups_describe_shows_type_and_state(lograft: Commands) -> None:
    share = lograft("groups", "describe", "share")
    assert share.code == 0
    assert share.out.startswith("share  share  Stable  members not shown: Lograft does not")
    streams = lograft("groups", "describe", "streams")
    assert streams.out.startswith("streams  streams  Assigning  members not shown")
    assert "full-0" in streams.out
    missing = lograft("groups", "describe", "nowhere")
    assert "group nowhere does not exist" in missing.err


def test_groups_delete_error_contains_the_group_type(lograft: Commands) -> None:
    shown = lograft("groups", "delete", "share-empty")
    assert "older release" not in shown.err
    assert "only Apache Kafka deletes share and streams groups" in shown.err


def test_reset_of_streams_group_is_rejected(cluster: Cluster) -> None:
    from lograft.client.admin import Target

    with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        pytest.raises(WrongUse, match="group streams is a streams group"),
    ):
        admin.plan_reset("streams", Target(earliest=True))


def test_kafka_consumer_groups_lists_only_consumer_groups(lograft: Commands) -> None:
    listed = lograft("kafka-consumer-groups", "--list")
    assert "mine" in listed.out.split()
    assert not {"share", "share-empty", "streams"} & set(listed.out.split())
    described = lograft("kafka-consumer-groups", "--describe", "--all-groups")
    assert described.code == 0
    assert "streams" not in described.out
    typed = lograft("kafka-consumer-groups", "--list", "--type", "share")
    assert "Invalid types list 'share'. Valid types are: Classic, Consumer" in typed.err
    share = lograft("kafka-consumer-groups", "--describe", "--group", "share")
    assert "Consumer group 'share' does not exist." in share.err


def test_explanation_for_apache_kafka() -> None:
    assert explain_other_type("Share", is_lograft=False) == (
        "it is a share group, not a consumer group: use another group id"
    )
