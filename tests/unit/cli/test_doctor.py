"""`lograft doctor` finds what is wrong, and says what to do."""

from lograft.cli.doctor import Report, examine, lines
from lograft.client.admin import Admin, NewTopic
from lograft.testing import VirtualCluster
from tests.unit.client.administering.playing import play


def resolve(host: str) -> list[str]:
    if host == "nowhere":
        raise OSError("unknown")
    return [host]


def verdicts(report: Report) -> list[str]:
    return [one.verdict for one in report.findings]


def test_a_healthy_cluster() -> None:
    async def scenario(_cluster: VirtualCluster, admin: Admin) -> None:
        await admin.create_topics([NewTopic("t", partitions=2, replicas=3)])
        report = await examine(admin, resolve)
        assert report.is_well
        assert set(verdicts(report)) == {"good"}
        shown = lines(report)
        assert "ok  all 2 partitions have a leader and all replicas" in shown
        assert sum("at its advertised address" in line for line in shown) == 3

    play(scenario, nodes=3)


def test_a_broker_that_is_away() -> None:
    async def scenario(cluster: VirtualCluster, admin: Admin) -> None:
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

    play(scenario, nodes=3)


def test_nobody_is_there() -> None:
    async def scenario(_cluster: VirtualCluster, admin: Admin) -> None:
        report = await examine(admin, resolve)
        assert verdicts(report) == ["good", "bad", "bad", "bad"]
        unknown, refused, nobody = report.findings[1:]
        assert unknown.what == "bootstrap server nowhere:9: the host name nowhere is not known here"
        assert refused.what.startswith("bootstrap server n1:7: connect failed")
        assert "is the node running" in refused.next_step
        assert "lograft start" in nobody.next_step

    play(scenario, {"bootstrap.servers": "nowhere:9,n1:7"})
