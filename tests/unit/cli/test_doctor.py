"""`lograft doctor` finds what is wrong, and says what to do."""

import asyncio
import re
from uuid import UUID

import pytest

from lograft.cli.doctor import Finding, Report, examine, lines
from lograft.cli.quorum import describe_lines
from lograft.client.admin import (
    Admin,
    ConfigChange,
    NewTopic,
    QuorumDescription,
    QuorumReplica,
    broker_resource,
)
from lograft.metadata.types import ResourceType
from lograft.model.types import ZERO_UUID, Epoch, Offset
from lograft.testing import VirtualCluster
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
    return [one.verdict for one in report.findings]


@scenario(play, nodes=3)
async def test_a_healthy_cluster(cluster: VirtualCluster, admin: Admin, /) -> None:
    await admin.create_topics([NewTopic("t", partitions=2, replicas=3)])
    report = await examine(admin, resolve)
    assert report.is_well
    assert set(verdicts(report)) == {"good"}
    shown = lines(report)
    assert "ok  all 2 partitions have a leader and all replicas" in shown
    assert sum("at its advertised address" in line for line in shown) == 3


@scenario(play, nodes=3)
async def test_a_broker_that_is_away(cluster: VirtualCluster, admin: Admin, /) -> None:
    await admin.create_topics(
        [NewTopic("t", assignment={0: [1, 2, 3]}), NewTopic("alone", assignment={0: [3]})]
    )
    cluster.kill(3)
    await cluster.wait_for(lambda: cluster.image.brokers[3].fenced)
    report = await examine(admin, resolve)
    assert not report.is_well
    found = {one.what: one for one in report.findings if one.verdict != "good"}
    leaderless = found["1 partition without a leader: alone-0"]
    assert leaderless.next_step == "start the brokers that hold them: 3"
    behind = found["1 partition with replicas that are not in sync: t-0"]
    assert "see whether brokers 3 are up" in behind.next_step
    assert any("bootstrap server" in what for what in found)


@scenario(play, {"bootstrap.servers": "nowhere:9,n1:7"})
async def test_nobody_is_there(cluster: VirtualCluster, admin: Admin, /) -> None:
    report = await examine(admin, resolve)
    assert verdicts(report) == ["good", "bad", "bad", "bad"]
    unknown, refused, nobody = report.findings[1:]
    assert unknown.what == "bootstrap server nowhere:9: the host name nowhere is not known here"
    assert refused.what.startswith("bootstrap server n1:7: connect failed")
    assert "is the node running" in refused.next_step
    assert "lograft start" in nobody.next_step


def quorum_finding(report: Report) -> Finding:
    (found,) = (one for one in report.findings if one.what.startswith("the quorum has"))
    return found


@pytest.mark.parametrize("kills_the_leader", [False, True])
@scenario(play, nodes=3)
async def test_a_controller_that_was_killed(
    cluster: VirtualCluster, admin: Admin, /, kills_the_leader: bool
) -> None:
    leader = (await admin.describe_quorum()).leader
    killed = leader if kills_the_leader else next(one for one in (1, 2, 3) if one != leader)
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
    assert found.next_step.startswith(f"start controller {killed} again")
    await cluster.start(killed)
    await cluster.wait_for(lambda: not cluster.image.brokers[killed].fenced)
    assert quorum_finding(await examine(admin, resolve)).verdict == "good"


@scenario(play, nodes=3)
async def test_a_controller_that_was_just_elected_gets_a_second_look(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    before = await admin.describe_quorum()
    cluster.kill(before.leader)
    await cluster.wait_for(lambda: cluster.image.brokers[before.leader].fenced)
    report = await examine(admin, resolve)
    assert f"controller {before.leader} has not fetched" in quorum_finding(report).what
    others = {1, 2, 3} - {before.leader}
    assert not any(f"controller {one} has not" in quorum_finding(report).what for one in others)


def test_ages_are_those_of_the_leaders_clock_and_never_negative() -> None:
    voters = (
        QuorumReplica(1, ZERO_UUID, 9, 5_000, 5_000),
        QuorumReplica(2, ZERO_UUID, 9, 4_700, 4_700),
        QuorumReplica(3, ZERO_UUID, -1, -1, -1),
    )
    quorum = QuorumDescription(1, 1, 9, voters, (), {})
    assert [quorum.age_ms(one.last_fetch_ms) for one in voters] == [0, 300, None]
    assert quorum.age_ms(6_000) == 0
    shown = [line.split("  ") for line in describe_lines(quorum)]
    assert [next((part for part in line if "s ago" in part), None) for line in shown[3:]] == [
        "0.0 s ago",
        "0.3 s ago",
        None,
    ]


@scenario(play)
async def test_a_stored_setting_that_a_broker_cannot_apply(
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
    (finding,) = [each for each in report.findings if each.verdict == "bad"]
    assert finding.what.startswith(
        "broker 1 cannot apply the dynamic setting log.cleaner.dedupe.buffer.size (of all brokers)"
    )
    assert "lograft configs" in finding.next_step


@scenario(play)
async def test_state_of_kafka_that_is_not_enforced(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    broker = cluster.node(1).broker
    records = [
        AccessControlEntryRecord(id=UUID(int=1), principal="User:ann"),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name="ann")],
            key="producer_byte_rate",
            value=1024.0,
        ),
    ]
    broker.metadata.on_committed(Offset(broker.image.offset), Epoch(broker.image.epoch), records)
    report = await examine(admin, resolve)
    assert report.is_well
    found = [each for each in report.findings if each.verdict == "doubtful"]
    assert [each.what.partition(":")[0] for each in found] == [
        "1 ACL is stored but not enforced",
        "1 client quota is stored but not enforced",
    ]
    assert all("restrict access by other means" in each.next_step for each in found)
