"""`lograft doctor` finds problems and suggests next steps."""

import asyncio
import re
from uuid import UUID

import pytest

from lograft.cli.doctor import Finding, Report, examine, find_slow_figures, report_lines
from lograft.cli.node_history import NodeHistory, Values
from lograft.cli.quorum import describe_lines
from lograft.client.admin import (
    Admin,
    ConfigChange,
    NewTopic,
    QuorumDescription,
    QuorumReplica,
    broker_resource,
)
from lograft.metadata.types import PartitionState, ResourceType
from lograft.model.types import ZERO_UUID, Epoch, Offset, ReplicationMode
from lograft.testing import Cluster, VirtualCluster
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import play


def resolve(host: str) -> list[str]:
    if host == "nowhere":
        raise OSError("unknown")
    return [host]


def verdicts(report: Report) -> list[str]:
    return [finding.verdict for finding in report.findings]


@scenario(play, nodes=3)
async def test_a_healthy_cluster_has_only_good_findings(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", partitions=2, replicas=3)])
    report = await examine(admin, resolve)
    assert report.is_well
    assert set(verdicts(report)) == {"good"}
    shown = report_lines(report)
    assert "ok  all 2 partitions have a leader and all replicas in sync" in shown
    assert sum("at its advertised address" in line for line in shown) == 3


@scenario(play, nodes=3)
async def test_an_offline_broker_is_reported_with_its_partitions(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics(
        [NewTopic("t", assignment={0: [1, 2, 3]}), NewTopic("alone", assignment={0: [3]})]
    )
    cluster.kill(3)
    await cluster.wait_for(lambda: cluster.image.brokers[3].fenced)
    report = await examine(admin, resolve)
    assert not report.is_well
    found = {finding.what: finding for finding in report.findings if finding.verdict != "good"}
    leaderless = found["1 partition without a leader: alone-0"]
    assert leaderless.next_step == "start broker 3, which can become the leader"
    under_replicated = found["1 under-replicated partition: t-0"]
    assert "make sure that broker 3 can fetch" in under_replicated.next_step
    assert any("bootstrap server" in what for what in found)


@scenario(play, {"bootstrap.servers": "nowhere:9,n1:7"})
async def test_unreachable_bootstrap_servers_are_reported(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    report = await examine(admin, resolve)
    assert verdicts(report) == ["good", "bad", "bad", "bad"]
    unknown, refused, summary = report.findings[1:]
    assert unknown.what == "bootstrap server nowhere:9: the host name nowhere cannot be resolved"
    assert refused.what.startswith("bootstrap server n1:7: connect failed")
    assert "check that the node is running" in refused.next_step
    assert "lograft start" in summary.next_step


def quorum_finding(report: Report) -> Finding:
    (found,) = (finding for finding in report.findings if finding.what.startswith("the quorum has"))
    return found


@pytest.mark.parametrize("kills_the_leader", [False, True])
@scenario(play, nodes=3)
async def test_a_controller_that_was_killed_is_reported(
    cluster: VirtualCluster, admin: Admin, /, kills_the_leader: bool
) -> None:
    leader = (await admin.describe_quorum()).leader
    killed = leader if kills_the_leader else next(node for node in (1, 2, 3) if node != leader)
    cluster.kill(killed)
    await asyncio.sleep(20)
    report = await examine(admin, resolve)
    found = quorum_finding(report)
    assert found.verdict == "doubtful"
    age = r"since controller \d became active" if kills_the_leader else r"for (19|2\d)\.\d s"
    assert re.search(
        rf"; controller {killed} has not fetched {age} and n{killed}:\d+ does not accept"
        " connections; one more failure stops the quorum$",
        found.what,
    )
    assert found.next_step.startswith(f"restart controller {killed}, ")
    await cluster.start(killed)
    await cluster.wait_for(lambda: not cluster.image.brokers[killed].fenced)
    assert quorum_finding(await examine(admin, resolve)).verdict == "good"


@scenario(play, nodes=3)
async def test_a_new_controller_is_described_again_after_its_first_fetches(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    before = await admin.describe_quorum()
    cluster.kill(before.leader)
    await cluster.wait_for(lambda: cluster.image.brokers[before.leader].fenced)
    report = await examine(admin, resolve)
    assert f"controller {before.leader} has not fetched" in quorum_finding(report).what
    others = {1, 2, 3} - {before.leader}
    assert not any(f"controller {node} has not" in quorum_finding(report).what for node in others)


@scenario(play, nodes=3)
async def test_quorum_without_a_majority_is_reported(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", assignment={0: [1, 2, 3]})])
    for node in (2, 3):
        cluster.kill(node)
    report = await examine(admin, resolve)
    found = report.findings[-1]
    assert found.verdict == "bad"
    assert found.what.startswith("the quorum has no active controller, ")
    assert "a majority of the voters" in found.next_step


def test_ages_use_the_leaders_clock_and_are_never_negative() -> None:
    voters = (
        QuorumReplica(1, ZERO_UUID, 9, 5_000, 5_000),
        QuorumReplica(2, ZERO_UUID, 9, 4_700, 4_700),
        QuorumReplica(3, ZERO_UUID, -1, -1, -1),
    )
    quorum = QuorumDescription(1, 1, 9, voters, (), {})
    assert [quorum.age_ms(voter.last_fetch_ms) for voter in voters] == [0, 300, None]
    assert quorum.age_ms(6_000) == 0
    shown = [line.split("  ") for line in describe_lines(quorum)]
    assert [next((part for part in line if "s ago" in part), None) for line in shown[3:]] == [
        "0.0 s ago",
        "0.3 s ago",
        None,
    ]


@scenario(play)
async def test_a_stored_setting_that_a_broker_cannot_apply_is_reported(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    broker = cluster.node(1).broker
    record = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name="",
        name="log.cleaner.dedupe.buffer.size",
        value="1000",
    )
    broker.metadata.on_committed(Offset(broker.image.offset), Epoch(broker.image.epoch), [record])
    await admin.alter_configs({broker_resource(1): [ConfigChange("log.retention.ms", "77")]})
    assert broker.config.topic_defaults.retention_ms == 77
    report = await examine(admin, resolve)
    (finding,) = [finding for finding in report.findings if finding.verdict == "bad"]
    assert finding.what.startswith(
        "broker 1 cannot apply the dynamic setting log.cleaner.dedupe.buffer.size (of all brokers)"
    )
    assert "lograft configs" in finding.next_step


@scenario(play)
async def test_stored_state_that_is_not_enforced_is_reported(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    broker = cluster.node(1).broker
    records = [
        AccessControlEntryRecord(id=UUID(int=1), principal="User:ann"),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="ip", entity_name="gateway")],
            key="connection_creation_rate",
            value=10.0,
        ),
    ]
    broker.metadata.on_committed(Offset(broker.image.offset), Epoch(broker.image.epoch), records)
    report = await examine(admin, resolve)
    assert report.is_well
    found = [finding for finding in report.findings if finding.verdict == "doubtful"]
    assert [finding.what.partition(":")[0] for finding in found] == [
        "1 ACL is stored but not enforced, because authorizer.class.name is not set",
        "the connection quotas of gateway are stored but not enforced",
    ]
    assert all("restrict access by other means" in finding.next_step for finding in found)


@scenario(play, nodes=3)
async def test_brokers_that_run_are_not_named_for_missing_leaders(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    """A raft partition needs a majority, so its online replica is a candidate without leading."""
    raft = {"replication.mode": "raft"}
    await admin.create_topics([NewTopic("t", assignment={0: [3, 2]}, configs=raft)])

    def partition() -> PartitionState:
        (topic,) = cluster.image.topics.values()
        return topic.partitions[0]

    await cluster.wait_for(lambda: partition().mode is ReplicationMode.RAFT)
    leader = partition().leader
    cluster.kill(leader)
    await cluster.wait_for(lambda: cluster.image.brokers[leader].fenced)
    report = await examine(admin, resolve)
    (leaderless,) = [each for each in report.findings if "without a leader" in each.what]
    assert leaderless.next_step == f"start broker {leader}, which can become the leader"


def history(**series: Values) -> NodeHistory:
    return NodeHistory(
        url="http://localhost:9094",
        node_id=1,
        cluster_id="c",
        step_ms=5_000,
        end_ms=0,
        series=series,
        topics={},
        groups={},
    )


def test_slow_figures_of_a_node_are_reported() -> None:
    slow = history(
        loop_delay_p99=(0.5, 0.6, 0.7),
        flush_p99=(2.0, None, 3.0),
        metadata_lag=(500.0,),
        connections_rejected=(3.0,),
    )
    assert [what for what, _ in find_slow_figures(slow)] == [
        "its event loop is 0.60 s late",
        "an fsync takes 2.5 s",
        "it has not applied 500 committed metadata records",
        "it rejects 3.0 connections per second",
    ]


def test_single_slow_points_and_missing_series_are_normal() -> None:
    usual = history(loop_delay_p99=(0.01, 9.0, 0.01), flush_p99=(None, None), metadata_lag=(0.0,))
    assert list(find_slow_figures(usual)) == []


def test_unencrypted_logins_are_reported() -> None:
    with Cluster(nodes=2, security="plain") as cluster:

        async def main() -> Report:
            async with Admin(cluster.client_settings()) as admin:
                return await examine(admin, resolve)

        report = asyncio.run(main())
    assert report.is_well
    (doubtful,) = (finding for finding in report.findings if finding.verdict == "doubtful")
    assert doubtful.what == (
        "logins are not encrypted (SASL_PLAINTEXT): SASL of broker 1, CONTROLLER of broker 1, SASL"
        " of broker 2, CONTROLLER of broker 2"
    )
    assert "SASL_SSL" in doubtful.next_step
