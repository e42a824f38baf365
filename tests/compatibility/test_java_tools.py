"""Kafka 4.3.1's own command line tools against Lograft and against Apache Kafka."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import create_topic, produce, read, values_of
from tests.compatibility.servers import NODE_ID, Server

pytestmark = pytest.mark.interop
NewName = Callable[[], str]


def to(server: Server) -> tuple[str, str]:
    return "--bootstrap-server", server.bootstrap


def test_topic_command(server: Server, java_tools: JavaTools, new_topic: NewName) -> None:
    topic, address = new_topic(), to(server)
    create = ("--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=7200000")
    assert f"Created topic {topic}." in java_tools.check("TopicCommand", *address, *create).text
    again = java_tools.run("TopicCommand", *address, *create)
    assert again.code == 1
    assert f"Topic '{topic}' already exists." in again.text
    assert topic in java_tools.check("TopicCommand", *address, "--list").lines
    java_tools.check("TopicCommand", *address, "--alter", "--topic", topic, "--partitions", "4")
    described = java_tools.check("TopicCommand", *address, "--describe", "--topic", topic)
    heads = [line.split("\t") for line in described.lines if line.startswith("Topic: ")]
    assert heads[0][2:4] == ["PartitionCount: 4", "ReplicationFactor: 1"]
    assert "retention.ms=7200000" in heads[0][4]
    for partition in range(4):
        wanted = f"Partition: {partition}\tLeader: {NODE_ID}\tReplicas: {NODE_ID}\tIsr: {NODE_ID}"
        assert wanted in described.text
    java_tools.check("TopicCommand", *address, "--delete", "--topic", topic)
    assert topic not in java_tools.check("TopicCommand", *address, "--list").lines


def test_topic_command_names_what_is_wrong(
    server: Server, java_tools: JavaTools, new_topic: NewName
) -> None:
    topic, address = new_topic(), to(server)
    wrong = {
        ("--create", "--topic", topic, "--replication-factor", "5"): "replication factor",
        (
            "--create",
            "--topic",
            topic,
            "--partitions",
            "0",
        ): "The partitions must be greater than 0",
        ("--create", "--topic", topic, "--config", "segment.bytes=lots"): "segment.bytes",
        ("--describe", "--topic", topic): "does not exist as expected",
        ("--alter", "--topic", topic, "--partitions", "4"): "does not exist as expected",
    }
    for arguments, reason in wrong.items():
        refused = java_tools.run("TopicCommand", *address, *arguments)
        assert refused.code == 1, arguments
        assert reason in refused.text, arguments


def test_config_command(server: Server, java_tools: JavaTools, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    entity = (*to(server), "--entity-type", "topics", "--entity-name", topic)
    java_tools.check("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=1234567")
    shown = java_tools.check("ConfigCommand", *entity, "--describe").text
    assert "retention.ms=1234567 sensitive=false" in shown
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1234567" in shown
    java_tools.check("ConfigCommand", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in java_tools.check("ConfigCommand", *entity, "--describe").text
    everything = java_tools.check("ConfigCommand", *entity, "--describe", "--all").text
    assert "DEFAULT_CONFIG:log.cleanup.policy=delete" in everything
    refused = java_tools.run("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=no")
    assert refused.code == 1
    assert "Invalid value no for configuration retention.ms" in refused.text


def test_config_command_on_a_broker(server: Server, java_tools: JavaTools) -> None:
    entity = (*to(server), "--entity-type", "brokers", "--entity-name", str(NODE_ID))
    shown = java_tools.check("ConfigCommand", *entity, "--describe", "--all").text
    assert "STATIC_BROKER_CONFIG:num.partitions=2, DEFAULT_CONFIG:num.partitions=1" in shown
    change = ("--alter", "--add-config", "message.max.bytes=2000000")
    java_tools.check("ConfigCommand", *entity, *change)
    shown = java_tools.check("ConfigCommand", *entity, "--describe").text
    assert "DYNAMIC_BROKER_CONFIG:message.max.bytes=2000000" in shown
    java_tools.check("ConfigCommand", *entity, "--alter", "--delete-config", "message.max.bytes")
    refused = java_tools.run("ConfigCommand", *entity, "--alter", "--add-config", "node.id=7")
    assert refused.code == 1


def test_offsets_and_delete_records(
    server: Server, java_tools: JavaTools, new_topic: NewName, tmp_path: Path
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=2)
    produce(server.bootstrap, topic, [b"x"] * 10, timestamps_ms=[1000 + n for n in range(10)])
    ask = (*to(server), "--topic", topic)
    assert java_tools.check("GetOffsetShell", *ask).lines == [f"{topic}:0:10", f"{topic}:1:0"]
    order = {"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}
    (tmp_path / "order.json").write_text(json.dumps(order))
    deleted = java_tools.check(
        "DeleteRecordsCommand", *to(server), "--offset-json-file", str(tmp_path / "order.json")
    )
    assert f"partition: {topic}-0\tlow_watermark: 4" in deleted.text
    asked = {"earliest": "4", "latest": "10", "max-timestamp": "9", "1006": "6"}
    for when, offset in asked.items():
        found = java_tools.check("GetOffsetShell", *ask, "--partitions", "0", "--time", when)
        assert found.lines == [f"{topic}:0:{offset}"]


def test_log_dirs_command(server: Server, java_tools: JavaTools, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"x" * 1000] * 10)
    answer = java_tools.check("LogDirsCommand", *to(server), "--describe", "--topic-list", topic)
    (broker,) = json.loads(answer.lines[-1])["brokers"]
    (folder,) = broker["logDirs"]
    assert (folder["logDir"], folder["error"]) == (str(server.data), None)
    (partition,) = folder["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] == (server.data / f"{topic}-0" / f"{0:020}.log").stat().st_size


def test_verifiable_producer(server: Server, java_tools: JavaTools, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    done = java_tools.run_alone(
        "VerifiableProducer", *to(server), "--topic", topic, "--max-messages", "500", "--acks", "-1"
    )
    assert done.code == 0, done.text
    events = [json.loads(line) for line in done.lines if line.startswith("{")]
    assert [each["offset"] for each in events if each["name"] == "producer_send_success"] == [
        *range(500)
    ]
    assert values_of(read(server.bootstrap, topic)) == [b"%d" % n for n in range(500)]


def test_cluster_tools(server: Server, java_tools: JavaTools) -> None:
    identity = java_tools.check("ClusterTool", "cluster-id", *to(server)).text
    assert identity.startswith("Cluster ID: ")
    quorum = java_tools.check("MetadataQuorumCommand", *to(server), "describe", "--status").text
    assert f"LeaderId:               {NODE_ID}" in quorum
    assert "MaxFollowerLag:         0" in quorum
    features = java_tools.check("FeatureCommand", *to(server), "describe").text
    assert "Feature: metadata.version" in features
    assert "4.3-IV0" in features


def test_advertised_versions_are_kafkas(server: Server, java_tools: JavaTools) -> None:
    """For each API that both support, the tool finds a common version."""
    shown = java_tools.check("BrokerApiVersionsCommand", *to(server)).text
    for wanted in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13"):
        assert wanted in shown
    assert "UNKNOWN" not in shown
