"""`lograft kafka-…` and Kafka's own tools print the same for the same node."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.command_line import done, lograft
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.servers import CLUSTER_ID, Server

NewName = Callable[[], str]
#: Classes of the tools, by their names in Kafka.
CLASSES = {
    "kafka-topics": "TopicCommand",
    "kafka-configs": "ConfigCommand",
    "kafka-consumer-groups": "ConsumerGroupCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-reassign-partitions": "ReassignPartitionsCommand",
    "kafka-storage": "StorageTool",
}


@pytest.fixture
def to(server: Server) -> tuple[str, str]:
    return "--bootstrap-server", server.bootstrap


def lines_of(text: str) -> list[str]:
    """Sorted, because the order of Java's maps is arbitrary; without values that differ in every
    call."""
    text = re.sub(r"\d{13}", "TIME", text)
    lines = [line.rstrip() for line in text.splitlines()]
    lines = [_sorted_configs(line) for line in lines if line and line != "null"]
    return sorted(line for line in lines if not line.startswith("ToolRunner"))


def _sorted_configs(line: str) -> str:
    head, found, configs = line.partition("Configs: ")
    return head + found + ",".join(sorted(configs.split(","))) if found else line


@pytest.mark.interop
@pytest.mark.timeout(480)  # twenty calls of Java's tools, on a loaded machine
def test_both_say_the_same(
    server: Server, java_tools: JavaTools, new_topic: NewName, tmp_path: Path
) -> None:
    topic = group = new_topic()
    to = ("--bootstrap-server", server.bootstrap)
    named = ("--topic", topic)
    done("kafka-topics", *to, "--create", *named, "--config", "retention.ms=5000")
    done("kafka-console-producer", *to, *named, text="a\nb\n")
    done("consume", topic, "-b", server.bootstrap, "--group", group)
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    of_group = ("--group", group)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    of_user = ("--entity-type", "users", "--entity-name", topic)
    for tool, *arguments in (
        ("kafka-topics", "--describe", *named),
        ("kafka-topics", "--list"),
        ("kafka-topics", "--describe", *named, "--under-replicated-partitions"),
        ("kafka-topics", "--describe", *named, "--topics-with-overrides"),
        ("kafka-configs", "--describe", *of_topic),
        ("kafka-configs", "--describe", *of_topic, "--all"),
        ("kafka-configs", "--describe", "--entity-type", "brokers"),
        ("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=6000"),
        ("kafka-configs", "--alter", *of_topic, "--delete-config", "retention.ms"),
        ("kafka-configs", "--alter", *of_user, "--add-config", "producer_byte_rate=20000000"),
        ("kafka-configs", "--describe", *of_user),
        ("kafka-consumer-groups", "--list", "--state"),
        ("kafka-consumer-groups", "--describe", *of_group),
        ("kafka-consumer-groups", "--describe", *of_group, "--state"),
        ("kafka-consumer-groups", "--describe", *of_group, "--members"),
        ("kafka-consumer-groups", "--reset-offsets", *of_group, *named, "--to-latest", "--dry-run"),
        ("kafka-consumer-groups", "--delete-offsets", *of_group, *named),
        ("kafka-metadata-quorum", "describe", "--status"),
        ("kafka-metadata-quorum", "describe", "--replication"),
        ("kafka-reassign-partitions", "--list"),
        ("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan)),
    ):
        theirs = java_tools.run(CLASSES[tool], *to, *arguments)
        ours = done(tool, *to, *arguments)
        assert lines_of(ours.out) == lines_of(theirs.text), (tool, arguments)
    done("kafka-configs", *to, "--alter", *of_user, "--delete-config", "producer_byte_rate")
    of_controllers = ("--bootstrap-controller", server.controller, "describe", "--status")
    theirs = java_tools.check("MetadataQuorumCommand", *of_controllers)
    ours = done("kafka-metadata-quorum", *of_controllers)
    assert lines_of(ours.out) == lines_of(theirs.text)
    assert f"ClusterId:              {CLUSTER_ID}" in ours.lines


@pytest.mark.interop
@pytest.mark.parametrize(
    "arguments",
    [
        "version-mapping",
        "version-mapping --release-version 3.9-IV0",
        "version-mapping -r 4.0",
        "version-mapping -r 3.2",
        "feature-dependencies -f eligible.leader.replicas.version=1 --feature group.version=1",
        "feature-dependencies -f metadata.version=25 -f kraft.version=1 -f group.version=0",
        "feature-dependencies -f group.version=7",
        "feature-dependencies -f no.such.version=1",
        "feature-dependencies -f nonsense",
        "feature-dependencies",
    ],
)
def test_what_features_a_release_has(java_tools: JavaTools, arguments: str) -> None:
    theirs = java_tools.run("StorageTool", *arguments.split())
    ours = lograft("kafka-storage", *arguments.split())
    assert ours.code == theirs.code
    if ours.code:
        assert ours.err, "in words of its own"
    else:
        assert ours.out == theirs.text


@pytest.mark.clients
@pytest.mark.conformance
def test_flags_that_make_no_sense_end_with_one(to: tuple[str, str]) -> None:
    for arguments in (
        ("kafka-topics", *to),
        ("kafka-topics", *to, "--list", "--create"),
        ("kafka-topics", "--list"),
        ("kafka-topics", *to, "--create"),
        ("kafka-consumer-groups", *to, "--describe"),
        ("kafka-configs", *to, "--describe"),
        ("kafka-reassign-partitions", *to, "--verify"),
        ("kafka-console-consumer", *to, "--topic", "no-such-topic", "--from-beginning"),
        ("kafka-console-consumer", *to, "--topic", "t", "--offset", "1"),
        ("kafka-storage", "info", "--config", "/nowhere"),
        ("kafka-storage", "format", "--config", "/nowhere"),
        ("kafka-storage", "feature-dependencies"),
    ):
        shown = lograft(*arguments)
        assert shown.code == 1, arguments
        assert shown.err, arguments


@pytest.mark.clients
@pytest.mark.conformance
def test_a_group_is_reset_from_a_file(
    to: tuple[str, str], new_topic: NewName, tmp_path: Path
) -> None:
    topic = group = new_topic()
    done("kafka-topics", *to, "--create", "--topic", topic, "--partitions", "1")
    done("kafka-console-producer", *to, "--topic", topic, text="a\nb\nc\n")
    reset = ("kafka-consumer-groups", *to, "--group", group, "--reset-offsets")
    done(*reset, "--topic", topic, "--to-latest", "--execute")
    exported = done(*reset, "--topic", f"{topic}:0", "--shift-by", "-2", "--export", "--dry-run")
    assert exported.out == f'"{topic}",0,1\n'
    file = tmp_path / "offsets.csv"
    file.write_text(exported.out)
    done(*reset, "--from-file", str(file), "--execute")
    read = ("kafka-console-consumer", *to, "--topic", topic, "--group", group)
    shown = done(*read, "--max-messages", "2", "--formatter-property", "print.offset=true")
    assert shown.lines == ["Offset:1\tb", "Offset:2\tc"]
    deleted = done("kafka-consumer-groups", *to, "--delete", "--group", group)
    assert deleted.out == f"Deletion of requested consumer groups ('{group}') was successful.\n"


@pytest.mark.clients
@pytest.mark.conformance
def test_keys_headers_and_tombstones(to: tuple[str, str], new_topic: NewName) -> None:
    topic = new_topic()
    done("kafka-topics", *to, "--create", "--topic", topic, "--partitions", "1")
    reader = ("parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=|")
    flags = [word for each in reader for word in ("--reader-property", each)]
    done("kafka-console-producer", *to, "--topic", topic, *flags, text="h:1,i:2\tk|v\n\tk|NULL\n")
    formatter = ("print.key=true", "print.headers=true", "print.partition=true")
    flags = [word for each in formatter for word in ("--formatter-property", each)]
    read = ("kafka-console-consumer", *to, "--topic", topic, "--from-beginning")
    assert done(*read, "--max-messages", "2", *flags).lines == [
        "Partition:0\th:1,i:2\tk\tv",
        "Partition:0\tNO_HEADERS\tk\tnull",
    ]
    short = lograft(
        *("kafka-console-producer", *to, "--topic", topic, "--property", "parse.key=true"),
        text="no key\n",
    )
    assert (short.code, "No key separator found on line number 1" in short.err) == (1, True)
