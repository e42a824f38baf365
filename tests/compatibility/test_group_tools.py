"""Kafka 4.3.1's own tools on groups: VerifiableConsumer, ConsumerGroupCommand, console, perf."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.compatibility.java_tools import Background, JavaTools
from tests.compatibility.librdkafka import create_topic, produce
from tests.compatibility.members import CONSUMER, PROTOCOLS, all_of, joined, poll_until
from tests.compatibility.servers import NODE_ID, Server, in_full_run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop
NewName = Callable[[], str]
Settings = Mapping[str, Any]
PARTITIONS = 4
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
VERIFIABLE = {
    "range": ("--group-protocol", "classic"),
    "cooperative": ("--group-protocol", "classic", "--assignment-strategy", COOPERATIVE),
    "uniform": ("--group-protocol", "consumer"),
    "server-range": ("--group-protocol", "consumer", "--group-remote-assignor", "range"),
}


def to(server: Server) -> tuple[str, str]:
    return "--bootstrap-server", server.bootstrap


def topic_with(server: Server, new_topic: NewName, *, records: int) -> str:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        produce(server.bootstrap, topic, [b"%d" % n for n in range(records)], partition=partition)
    return topic


class Verifiable:
    """A VerifiableConsumer and the events that it has printed so far."""

    def __init__(self, process: Background) -> None:
        self._process = process

    def events(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self._process.events() if each["name"] == name]

    @property
    def owned(self) -> set[int]:
        held: set[int] = set()
        for event in self._process.events():
            numbers = {each["partition"] for each in event.get("partitions", ()) if "topic" in each}
            if event["name"] == "partitions_assigned":
                held |= numbers
            elif event["name"] == "partitions_revoked":
                held -= numbers
        return held

    @property
    def consumed(self) -> int:
        return sum(each["count"] for each in self.events("records_consumed"))


@contextmanager
def verifiable(
    java_tools: JavaTools, bootstrap: str, topic: str, *options: str
) -> Iterator[Verifiable]:
    address = ("--bootstrap-server", bootstrap)
    process = java_tools.start_alone(
        "VerifiableConsumer", *address, "--topic", topic, "--group-id", topic, *options
    )
    try:
        yield Verifiable(process)
    finally:
        printed = process.stop()
    assert printed[-1]["name"] == "shutdown_complete"


@pytest.mark.parametrize(
    "assignor", ["cooperative", "uniform", *in_full_run("range", "server-range")]
)
def test_verifiable_consumers_share_a_group(
    server: Server, java_tools: JavaTools, new_topic: NewName, assignor: str
) -> None:
    topic = topic_with(server, new_topic, records=50)
    with verifiable(java_tools, server.bootstrap, topic, *VERIFIABLE[assignor]) as first:
        wait_until(lambda: first.consumed == 200)
        with verifiable(java_tools, server.bootstrap, topic, *VERIFIABLE[assignor]) as second:
            wait_until(lambda: len(first.owned) == len(second.owned) == 2)
            assert first.owned | second.owned == {*range(PARTITIONS)}
            for partition in range(PARTITIONS):
                produce(server.bootstrap, topic, [b"more"] * 10, partition=partition)
            wait_until(lambda: first.consumed + second.consumed == 240)
            assert second.consumed == 20, "it began where the first had committed"
            wait_until(lambda: bool(second.events("offsets_committed")))
        wait_until(lambda: len(first.owned) == PARTITIONS)
        assert all(each["success"] for each in first.events("offsets_committed"))


def command(java_tools: JavaTools, server: Server, *arguments: str) -> list[str]:
    done = java_tools.run("ConsumerGroupCommand", *to(server), *arguments)
    return [line for line in done.lines if line.strip()]


def table(lines: list[str]) -> list[dict[str, str]]:
    """Rows by the column names; no cell of these tables contains a space."""
    heading = next(number for number, line in enumerate(lines) if line.startswith("GROUP "))
    names, *rows = (re.sub(r"\s+\(", "(", line).split() for line in lines[heading:])
    return [dict(zip(names, cells, strict=False)) for cells in rows]


@pytest.fixture(params=["eager", "consumer"])
def family(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


def test_consumer_group_command_on_a_live_group(
    server: Server, java_tools: JavaTools, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic, records=5)
    with joined(server.bootstrap, topic, [topic], family, {"client.id": "me"}) as member:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        member.commit(topic, 0, 2)
        group = ("--group", topic)
        assert topic in command(java_tools, server, "--list")
        kind = "Consumer" if family is CONSUMER else "Classic"
        listed = command(java_tools, server, "--list", "--state", "stable", "--type", kind)
        assert [topic, kind, "Stable"] in [line.split() for line in listed]
        rows = table(command(java_tools, server, "--describe", *group))
        shown = {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LAG"]) for row in rows}
        assert shown == {"0": ("2", "3"), **{f"{number}": ("-", "-") for number in (1, 2, 3)}}
        (row,) = table(command(java_tools, server, "--describe", *group, "--members"))
        assert (row["CLIENT-ID"], row["#PARTITIONS"], row["HOST"]) == ("me", "4", "/127.0.0.1")
        verbose = command(java_tools, server, "--describe", *group, "--members", "--verbose")
        assert f"{topic}:0,1,2,3" in " ".join(verbose)
        (row,) = table(command(java_tools, server, "--describe", *group, "--state"))
        assert (row["STATE"], row["#MEMBERS"]) == ("Stable", "1")
        assert row["COORDINATOR(ID)"] == f"{server.bootstrap}({NODE_ID})"
        assert row["ASSIGNMENT-STRATEGY"] == ("uniform" if family is CONSUMER else "range")
        reset = ("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
        assert "only be reset if the group" in " ".join(command(java_tools, server, *reset))
        assert "not empty" in " ".join(command(java_tools, server, "--delete", *group)).lower()


def offsets(java_tools: JavaTools, server: Server, topic: str) -> dict[str, str]:
    rows = table(command(java_tools, server, "--describe", "--group", topic))
    return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows}


def test_consumer_group_command_on_an_empty_group(
    server: Server, java_tools: JavaTools, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic, records=10)
    with joined(server.bootstrap, topic, [topic], family) as member:
        poll_until(lambda: len(member.values) == 40, member)
        member.consumer.commit(asynchronous=False)
    assert offsets(java_tools, server, topic) == dict.fromkeys("0123", "10")
    reset = ("--reset-offsets", "--group", topic)
    rows = table(command(java_tools, server, *reset, "--all-topics", "--shift-by", "-3"))
    assert {row["NEW-OFFSET"] for row in rows} == {"7"}, "a plan, no change"
    assert offsets(java_tools, server, topic) == dict.fromkeys("0123", "10")
    some = ("--topic", f"{topic}:0,1", "--execute")
    command(java_tools, server, *reset, *some, "--to-offset", "4")
    assert offsets(java_tools, server, topic) == {"0": "4", "1": "4", "2": "10", "3": "10"}
    command(java_tools, server, *reset, "--all-topics", "--execute", "--to-earliest")
    assert offsets(java_tools, server, topic) == dict.fromkeys("0123", "0")
    deleted = ("--delete-offsets", "--group", topic, "--topic", f"{topic}:1,2")
    assert "Successful" in " ".join(command(java_tools, server, *deleted))
    assert offsets(java_tools, server, topic) == {"0": "0", "3": "0"}
    printed = command(java_tools, server, "--delete", "--group", topic)
    assert "was successful" in " ".join(printed)
    assert topic not in command(java_tools, server, "--list")
    printed = command(java_tools, server, "--describe", "--group", topic)
    assert "not found" in " ".join(printed)


@pytest.mark.parametrize("protocol", ["consumer", *in_full_run("classic")])
def test_console_consumers_go_on_where_the_last_stopped(
    server: Server, java_tools: JavaTools, new_topic: NewName, protocol: str
) -> None:
    topic = topic_with(server, new_topic, records=10)
    options = ("--topic", topic, "--group", topic, "--from-beginning")
    named = ("--command-property", f"group.protocol={protocol}")
    seen: list[str] = []
    for count in ("15", "25"):
        done = java_tools.check(
            "ConsoleConsumer", *to(server), *options, *named, "--max-messages", count
        )
        seen += [line for line in done.lines if line.isdigit()]
    assert sorted(seen) == sorted(f"{n}" for n in range(10) for _partition in range(PARTITIONS))


def test_consumer_performance(server: Server, java_tools: JavaTools, new_topic: NewName) -> None:
    topic = topic_with(server, new_topic, records=250)
    options = ("--topic", topic, "--group", topic, "--num-records", "1000", "--hide-header")
    done = java_tools.check("ConsumerPerformance", *to(server), *options)
    assert ", 1000, " in done.lines[-1], done.text
    assert offsets(java_tools, server, topic) == dict.fromkeys("0123", "250")
