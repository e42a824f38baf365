"""Commands on three real nodes, some of which are down."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from lograft.cli.output import count
from tests.compatibility import conftest
from tests.compatibility.clusters import Cluster
from tests.compatibility.command_line import done, lograft
from tests.compatibility.servers import Server, lograft_command
from tests.support.waiting import wait_until

NewName = Callable[[], str]
SECONDS_MAX: Final = 60.0

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"auto.create.topics.enable": "false"}
    cluster = Cluster.of("lograft", tmp_path_factory.mktemp("cluster"), settings=settings)
    conftest.running.extend(cluster.servers)
    with cluster.started():
        yield cluster
    for server in cluster.servers:
        conftest.running.remove(server)


def quorum_finding(cluster: Cluster) -> dict[str, str]:
    shown = lograft("doctor", "-b", cluster.bootstrap, "--json")
    findings: list[dict[str, str]] = json.loads(shown.out)["findings"]
    (found,) = (finding for finding in findings if finding["what"].startswith("the quorum has"))
    return found


def test_doctor_finds_a_controller_that_was_killed(cluster: Cluster) -> None:
    assert quorum_finding(cluster)["verdict"] == "good"
    leader = json.loads(done("quorum", "describe", "-b", cluster.bootstrap, "--json").out)["leader"]
    killed = next(each for each in (1, 2, 3) if each != leader)
    cluster.node(killed).kill()
    up = cluster.node(leader).bootstrap
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while (found := quorum_finding(cluster))["verdict"] == "good":
            assert time.monotonic() < deadline
        assert f"controller {killed} has not fetched for " in found["what"]
        assert f"{cluster.node(killed).controller} does not accept connections" in found["what"]
        assert f"1 registered broker offline: {killed}" in lograft("doctor", "-b", up).out
    finally:
        cluster.node(killed).start()
    cluster.wait_joined()
    assert quorum_finding(cluster)["verdict"] == "good"


@pytest.mark.parametrize("tool", ["produce", "kafka-console-producer"])
def test_a_producer_says_what_it_waits_for(cluster: Cluster, new_topic: NewName, tool: str) -> None:
    topic = new_topic()
    where = ("--bootstrap-server", cluster.bootstrap)
    done(
        *("kafka-topics", *where, "--create", "--topic", topic),
        *("--replica-assignment", "3", "--config", "min.insync.replicas=1"),
    )
    timeouts = ("delivery.timeout.ms=5000", "request.timeout.ms=2000", "linger.ms=0")
    given = {
        "produce": ("produce", topic, *where, *(f"--setting={timeout}" for timeout in timeouts)),
        "kafka-console-producer": (
            *("kafka-console-producer", "--topic", topic, *where),
            *(f"--command-property={timeout}" for timeout in timeouts),
        ),
    }
    cluster.node(3).kill()
    try:
        shown = lograft(*given[tool], text="value\n")
    finally:
        cluster.node(3).start()
    cluster.wait_joined()
    assert shown.code == 1
    first, *_, last = shown.err.splitlines()
    assert first.endswith(
        f"waiting for a leader of {topic}-0: start broker 3; giving up after 5 s"
        " (delivery.timeout.ms)"
    )
    assert f"{topic}-0 were not acknowledged within delivery.timeout.ms" in last
    assert not shown.out


@pytest.mark.parametrize("options", [(), ("--follow",), ("--follow", "--group", "readers")])
def test_consume_says_what_it_waits_for(
    cluster: Cluster, new_topic: NewName, options: tuple[str, ...]
) -> None:
    topic = new_topic()
    where = ("-b", cluster.bootstrap)
    done(
        *("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", topic),
        *("--replica-assignment", "3,1"),
    )
    cluster.node(3).kill()
    process = subprocess.Popen(
        [*lograft_command(), "consume", topic, *where, *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            f"lograft: waiting for a leader of {topic}-0: start broker 3\n"
        )
    finally:
        process.terminate()
        process.communicate()
        cluster.node(3).start()
    cluster.wait_joined()


def test_a_topic_that_does_not_exist_is_named_at_once(cluster: Cluster, new_topic: NewName) -> None:
    topic = new_topic()
    shown = lograft(
        *("produce", topic, "value", "-b", cluster.bootstrap, "--setting", "max.block.ms=3000")
    )
    assert shown.code == 1
    assert f"waiting for topic {topic}, which does not exist" in shown.err


@pytest.mark.parametrize("mode", ["isr", "raft"])
def test_the_broker_that_leads_is_chosen(cluster: Cluster, new_topic: NewName, mode: str) -> None:
    topic = new_topic()
    where = ("-b", cluster.bootstrap)
    config = ("--config", f"replication.mode={mode}")
    done("topics", "create", topic, *where, "-p", "3", "-r", "3", *config)

    def partitions() -> list[dict[str, Any]]:
        (described,) = json.loads(done("topics", "describe", topic, *where, "--json").out)
        return list(described["partitions"])

    def is_ready() -> bool:
        return all(
            partition["leader"] > 0 and partition["mode"] == mode and len(partition["isr"]) == 3
            for partition in partitions()
        )

    wait_until(is_ready)
    done("produce", topic, "before", *where)
    for leader in (1, 2, 3):
        before = [partition["leader"] for partition in partitions()]
        shown = done("topics", "elect", topic, "--leader", str(leader), *where)
        assert [partition["leader"] for partition in partitions()] == [leader] * 3
        kept = before.count(leader)
        assert shown.out == (
            f"Broker {leader} now leads {count(3 - kept, 'partition')}; it already led"
            f" {count(kept, 'partition')}.\n"
        )
    done("topics", "elect", f"{topic}:1", "--leader", "2", *where)
    assert [partition["leader"] for partition in partitions()] == [3, 2, 3]
    done("produce", topic, "after", *where)
    assert sorted(done("consume", topic, *where, "--value-only").lines) == ["after", "before"]

    missing = lograft("topics", "elect", topic, "--leader", "9", *where)
    assert (missing.code, "Broker 9 is not a replica" in missing.err) == (1, True)
    for wrong in (("--leader", "1"), (topic, "--leader", "1", "--unclean")):
        assert lograft("topics", "elect", *wrong, *where).code == 2


def test_a_broker_that_is_offline_cannot_be_chosen(cluster: Cluster, new_topic: NewName) -> None:
    topic = new_topic()
    where = ("-b", cluster.bootstrap)
    done("topics", "create", topic, *where, "-p", "1", "-r", "3")
    cluster.node(3).kill()
    try:
        wait_until(lambda: "3" in _offline(cluster))
        shown = lograft("topics", "elect", topic, "--leader", "3", *where)
        assert (shown.code, bool(shown.err)) == (1, True)
    finally:
        cluster.node(3).start()
    cluster.wait_joined()


def test_doctor_reports_a_setting_that_a_controller_cannot_apply(
    new_server: Callable[..., Server],
) -> None:
    """A controller without the broker role has other settings in its file than the brokers."""
    controller, broker = new_server("lograft"), new_server("lograft")
    controller.node_id = 100
    for server in (controller, broker):
        server.voters = f"100@{controller.controller}"
    controller.settings |= {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{controller.controller}",
        "advertised.listeners": f"CONTROLLER://{controller.controller}",
        "log.cleaner.threads": "8",
    }
    broker.settings |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{broker.bootstrap}"}
    controller.launch()
    try:
        with broker.started():
            where = ("-b", broker.bootstrap)
            change = ("--set", "log.cleaner.dedupe.buffer.size=2000000")
            assert "cannot apply" not in done("doctor", *where).out
            done("configs", "alter", "--broker", "all", *change, *where)
            wait_until(lambda: "controller 100 cannot apply" in lograft("doctor", *where).out)
            shown = lograft("doctor", *where)
            assert shown.code == 1
            assert "log.cleaner.dedupe.buffer.size (of all brokers)" in shown.out
            assert "broker 1 cannot apply" not in shown.out
    finally:
        controller.kill()


def _offline(cluster: Cluster) -> set[str]:
    shown = json.loads(done("cluster", "describe", "-b", cluster.bootstrap, "--json").out)
    return {str(each["id"]) for each in shown["cluster"]["brokers"] if each["is_fenced"]}
