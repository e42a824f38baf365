"""State of Apache Kafka that Lograft stores: share groups and streams groups, quotas, ACLs, SCRAM
users, delegation tokens and client metrics subscriptions.

`fill` makes Kafka write all of it, `shown_by_tools` is the output of Kafka's own tools about it.
"""

from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.members import PROTOCOLS, all_of, joined, poll_until
from tests.compatibility.raw_requests import connect
from tests.compatibility.servers import Server, free_port
from tests.compatibility.unsupported_groups import (
    LEAVE,
    await_coordinator,
    share_heartbeat,
    streams_commit,
    streams_heartbeat,
)

TOPIC: Final = "read-by-every-group"
PARTITIONS: Final = 2
SERVED_GROUPS: Final = ("eager", "consumer")
#: One group with a member, one without.
SHARE_GROUPS: Final = ("share", "share-empty")
STREAMS_GROUPS: Final = ("streams", "streams-empty")
STREAMS_OFFSET: Final = 3
PASSWORD: Final = "a secret of tests"


def kafka_settings() -> dict[str, str]:
    """A Kafka with an authorizer and with delegation tokens, which need a SASL listener."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "1048576",
        "log.index.size.max.bytes": "4096",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "a key of tests",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
        # Their members do not expire without heartbeats while the test runs.
        "group.share.max.session.timeout.ms": "3600000",
        "group.share.session.timeout.ms": "3600000",
        "group.streams.max.session.timeout.ms": "3600000",
        "group.streams.session.timeout.ms": "3600000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.assignment.interval.ms": "0",
    }


def add_sasl_listener(server: Server) -> int:
    """Returns the port."""
    port = free_port()
    server.settings |= {
        "listeners": f"PLAINTEXT://{server.bootstrap},CONTROLLER://{server.controller},"
        f"SASL://{server.host}:{port}",
        "advertised.listeners": f"PLAINTEXT://{server.bootstrap},SASL://{server.host}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL:SASL_PLAINTEXT",
    }
    return port


def fill(server: Server, tools: JavaTools, folder: Path, *, sasl_port: int) -> None:
    create_topic(server.bootstrap, TOPIC, partitions=PARTITIONS)
    fill_groups(server)
    at = ("--bootstrap-server", server.bootstrap)
    scram = f"SCRAM-SHA-256=[iterations=4096,password={PASSWORD}]"
    user = ("--entity-type", "users", "--entity-name", "ann")
    client = ("--entity-type", "clients", "--entity-name", "crawler")
    for entity, value in (
        (user, scram),
        (user, "producer_byte_rate=1024"),
        ((*user, *client), "consumer_byte_rate=2048"),
        (("--entity-type", "clients", "--entity-default"), "request_percentage=200"),
        (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=5"),
    ):
        tools.check("ConfigCommand", *at, "--alter", *entity, "--add-config", value)
    tools.check("AclCommand", *at, "--add", "--allow-principal", "User:ann", "--consumer",
                "--topic", TOPIC, "--group", "*")  # fmt: skip
    tools.check("AclCommand", *at, "--add", "--deny-principal", "User:bob", "--operation",
                "Write", "--topic", "secret-", "--resource-pattern-type", "prefixed")  # fmt: skip
    tools.check("ClientMetricsCommand", *at, "--alter", "--name", "latencies",
                "--metrics", "org.apache.kafka.producer.", "--interval", "30000")  # fmt: skip
    properties = folder / "ann.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="ann" password="{PASSWORD}";\n'
    )
    tools.check("DelegationTokenCommand", "--bootstrap-server", f"{server.host}:{sasl_port}",
                "--command-config", str(properties), "--create",
                "--max-life-time-period", "-1", "--renewer-principal", "User:bob")  # fmt: skip


def fill_groups(server: Server) -> None:
    for group in SERVED_GROUPS:
        with joined(server.bootstrap, group, [TOPIC], PROTOCOLS[group]) as member:
            poll_until(lambda: member.owned == all_of(TOPIC, PARTITIONS), member)
            member.commit(TOPIC, 0, 4, f"of {group}")
            member.commit(TOPIC, 1, 7)
    with connect(server) as connection:
        for group in (*SHARE_GROUPS, *STREAMS_GROUPS):
            await_coordinator(connection, group)
        for group in SHARE_GROUPS:
            assert not share_heartbeat(connection, group, TOPIC).error_code
        for group in STREAMS_GROUPS:
            joining = streams_heartbeat(connection, group, TOPIC)
            assert not joining.error_code, joining
            streams_commit(connection, group, TOPIC, STREAMS_OFFSET, epoch=joining.member_epoch)
        assert not share_heartbeat(connection, SHARE_GROUPS[1], TOPIC, epoch=LEAVE).error_code
        assert not streams_heartbeat(connection, STREAMS_GROUPS[1], TOPIC, epoch=LEAVE).error_code


def commit_often(server: Server, group: str, *, count: int) -> None:
    """Large commits of an ordinary group fill a segment of `__consumer_offsets`, which compaction
    needs."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group})
    try:
        for number in range(count):
            at = TopicPartition(TOPIC, 0, number, metadata="." * 4000)
            (done,) = consumer.commit(offsets=[at], asynchronous=False)
            assert done.error is None
    finally:
        consumer.close()


def shown_by_tools(server: Server, tools: JavaTools) -> dict[str, str]:
    """Returns the output of every tool, sorted, without the metadata offset of the features."""
    at = ("--bootstrap-server", server.bootstrap)
    orders = {
        "users": ("ConfigCommand", "--describe", "--entity-type", "users"),
        "quotas of both": ("ConfigCommand", "--describe", "--entity-type", "users",
                           "--entity-type", "clients"),
        "clients": ("ConfigCommand", "--describe", "--entity-type", "clients"),
        "ips": ("ConfigCommand", "--describe", "--entity-type", "ips"),
        "acls": ("AclCommand", "--list"),
        "client metrics": ("ClientMetricsCommand", "--describe"),
        "groups": ("GroupsCommand", "--list"),
        "share groups": ("ShareGroupCommand", "--describe", "--all-groups"),
        "streams groups": ("StreamsGroupCommand", "--describe", "--all-groups"),
        "features": ("FeatureCommand", "describe"),
    }  # fmt: skip
    shown = {}
    for what, (tool, *arguments) in orders.items():
        text = tools.check(tool, *at, *arguments).text
        shown[what] = "\n".join(sorted(line.partition("Epoch:")[0] for line in text.splitlines()))
    return shown


def described_tokens(server: Server, tools: JavaTools, folder: Path, *, sasl_port: int) -> str:
    done = tools.check(
        "DelegationTokenCommand",
        "--bootstrap-server",
        f"{server.host}:{sasl_port}",
        "--command-config",
        str(folder / "ann.properties"),
        "--describe",
        "--owner-principal",
        "User:ann",
    )
    assert "Total number of tokens : 1" in done.text
    return done.text
