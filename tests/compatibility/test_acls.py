"""ACLs of kafka-acls, enforced for clients that log in: the same on Lograft and on Apache Kafka."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.settings.authorizer import STANDARD_AUTHORIZER
from lograft.model.settings.jaas import PLAIN_MODULE
from lograft.wire.batches import Record, build_batch
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lograft.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.compatibility.command_line import done
from tests.compatibility.java_tools import JavaTools, eventually
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.sasl_servers import SaslServer
from tests.compatibility.servers import Kind, compares_two, kinds_under_test

pytestmark = pytest.mark.clients

USERS: Final = ("alice", "bob", "carol")
SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:carol",
}


def acl_server(kind: Kind, folder: Path) -> SaslServer:
    """Its listener without SASL is for the admin: ANONYMOUS is a super user."""
    folder.mkdir(exist_ok=True)
    server = SaslServer(kind, folder, SETTINGS)
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    name = "listener.name.sasl.plain.sasl.jaas.config"
    server.server.settings[name] = f"{PLAIN_MODULE} required {users};"
    return server


@pytest.fixture(params=kinds_under_test(), scope="module")
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslServer]:
    server = acl_server(request.param, tmp_path_factory.mktemp("acls"))
    with server.server.started():
        yield server


@contextmanager
def logged_in(server: SaslServer, user: str) -> Iterator[socket.socket]:
    with connect(server.server, port=server.ports["SASL"]) as connection:
        ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{user}-secret".encode()
        reply: Any = ask(connection, SaslAuthenticateRequest(auth_bytes=token), 2)
        assert not reply.error_code, reply
        yield connection


class User:
    """What a user can do, as error codes."""

    def __init__(self, server: SaslServer, name: str) -> None:
        self._server = server
        self._name = name

    def produce(self, topic: str) -> ErrorCode:
        data = PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, b"v")]))
        request = ProduceRequest(
            acks=1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        with logged_in(self._server, self._name) as connection:
            reply = ask(connection, request, 9)
        assert isinstance(reply, ProduceResponse)
        return ErrorCode(reply.responses[0].partition_responses[0].error_code)

    def list_offsets(self, topic: str) -> ErrorCode:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        with logged_in(self._server, self._name) as connection:
            reply = ask(connection, request, 7)
        assert isinstance(reply, ListOffsetsResponse)
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    def topics(self) -> dict[str, int]:
        """With the authorized operations."""
        request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        with logged_in(self._server, self._name) as connection:
            reply = ask(connection, request, 10)
        assert isinstance(reply, MetadataResponse)
        return {topic.name or "": topic.topic_authorized_operations for topic in reply.topics}

    def find_topic(self, topic: str) -> ErrorCode:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        with logged_in(self._server, self._name) as connection:
            reply = ask(connection, request, 10)
        assert isinstance(reply, MetadataResponse)
        return ErrorCode(reply.topics[0].error_code)

    def create_topic(self, topic: str) -> ErrorCode:
        created = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[created], timeout_ms=5000)
        with logged_in(self._server, self._name) as connection:
            reply = ask(connection, request, 7)
        assert isinstance(reply, CreateTopicsResponse)
        return ErrorCode(reply.topics[0].error_code)


OK: Final = ErrorCode.NONE
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def until(expected: object, ask_again: Callable[[], object]) -> None:
    """A change is visible at the broker shortly after the tool has ended."""
    for _ in range(50):
        found = ask_again()
        if found == expected:
            return
    assert found == expected


def test_acls_decide_what_users_may_do(secured: SaslServer, java_tools: JavaTools) -> None:
    at = ("--bootstrap-server", secured.server.bootstrap)
    alice, bob, carol = (User(secured, name) for name in USERS)
    for topic in ("orders", "orders-eu", "payments"):
        create_topic(secured.server.bootstrap, topic)
    assert [alice.produce("orders"), alice.list_offsets("orders")] == [DENIED, DENIED]
    assert alice.topics() == {}
    assert alice.find_topic("orders") == alice.find_topic("missing") == DENIED
    assert carol.produce("orders") == OK

    # A prefix for alice, a wildcard for everybody, and an exception.
    java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:alice",
                     "--operation", "Write", "--operation", "Create", "--topic", "orders",
                     "--resource-pattern-type", "prefixed")  # fmt: skip
    until(OK, lambda: alice.produce("orders"))
    assert alice.produce("orders-eu") == OK
    assert alice.produce("payments") == DENIED
    assert alice.create_topic("orders-us") == OK
    assert alice.create_topic("other") == DENIED
    # Write implies Describe: bits 4, 5 and 8.
    assert alice.topics() == dict.fromkeys(("orders", "orders-eu", "orders-us"), 0b1_0011_0000)
    assert bob.topics() == {}
    java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:*",
                     "--operation", "Describe", "--topic", "*")  # fmt: skip
    java_tools.check("AclCommand", *at, "--add", "--deny-principal", "User:bob",
                     "--operation", "All", "--topic", "payments")  # fmt: skip
    until(DENIED, lambda: bob.list_offsets("payments"))
    assert bob.list_offsets("orders") == alice.list_offsets("payments") == OK
    assert sorted(bob.topics()) == ["orders", "orders-eu", "orders-us"]

    # A host other than that of the client.
    java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:bob", "--operation",
                     "Write", "--topic", "orders", "--allow-host", "10.9.9.9")  # fmt: skip
    java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:bob", "--operation",
                     "Write", "--topic", "orders-eu", "--allow-host", "127.0.0.1")  # fmt: skip
    until(OK, lambda: bob.produce("orders-eu"))
    assert bob.produce("orders") == DENIED

    java_tools.check("AclCommand", *at, "--remove", "--force", "--allow-principal", "User:alice",
                     "--operation", "Write", "--topic", "orders",
                     "--resource-pattern-type", "prefixed")  # fmt: skip
    until(DENIED, lambda: alice.produce("orders"))

    for options in (("--list",), ("--list", "--principal", "User:bob"), ("--list", "--topic", "t")):
        theirs = java_tools.check("AclCommand", *at, *options)
        ours = done("kafka-acls", *at, *options)
        # The order of Java's sets is arbitrary.
        assert sorted(ours.lines) == sorted(theirs.lines), options

    # Only who may alter or describe the cluster may manage ACLs.
    properties = secured.server.folder / "alice.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="alice" password="alice-secret";\n'
    )
    as_alice = ("--bootstrap-server", secured.address(), "--command-config", str(properties))
    refused = java_tools.run("AclCommand", *as_alice, "--list")
    assert "ClusterAuthorizationException" in refused.text
    refused = java_tools.run("AclCommand", *as_alice, "--add", "--allow-principal", "User:alice",
                             "--operation", "All", "--topic", "*")  # fmt: skip
    assert "ClusterAuthorizationException" in refused.text


def test_acls_are_listed_by_filter(secured: SaslServer, java_tools: JavaTools) -> None:
    at = ("--bootstrap-server", secured.server.bootstrap)
    java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:dave", "--consumer",
                     "--topic", "logs", "--group", "readers")  # fmt: skip
    java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:dave", "--operation",
                     "Read", "--topic", "lo", "--resource-pattern-type", "prefixed")  # fmt: skip
    java_tools.check("AclCommand", *at, "--add", "--deny-principal", "User:dave", "--operation",
                     "Alter", "--cluster")  # fmt: skip

    def listed(*arguments: str) -> list[str]:
        done = java_tools.check("AclCommand", *at, "--list", "--principal", "User:dave", *arguments)
        return sorted(line.strip() for line in done.text.splitlines() if "principal=" in line)

    allowed = "(principal=User:dave, host=*, operation={}, permissionType=ALLOW)"
    describe, read = allowed.format("DESCRIBE"), allowed.format("READ")
    denied = "(principal=User:dave, host=*, operation=ALTER, permissionType=DENY)"
    eventually(
        lambda: java_tools.run("AclCommand", *at, "--list", "--principal", "User:dave"),
        lambda text: "DENY" in text,
    )
    assert listed() == [denied, describe, read, read, read]
    assert listed("--topic", "logs") == [describe, read]
    match = ("--resource-pattern-type", "match")
    assert listed("--topic", "logs", *match) == [describe, read, read]
    assert listed("--topic", "loans", *match) == [read]
    assert listed("--group", "readers") == [read]
    assert listed("--cluster") == [denied]
    java_tools.check("AclCommand", *at, "--remove", "--force", "--topic", "logs",
                     *match)  # fmt: skip
    until([denied, read], listed)


@compares_two()
@pytest.mark.parametrize(("writer", "reader"), [("kafka", "lograft"), ("lograft", "kafka")])
def test_acls_in_a_data_directory_are_enforced_by_the_other(
    tmp_path: Path, java_tools: JavaTools, writer: Kind, reader: Kind
) -> None:
    first = acl_server(writer, tmp_path / "first")
    at = ("--bootstrap-server", first.server.bootstrap)
    with first.server.started():
        for topic in ("orders", "orders-eu", "payments"):
            create_topic(first.server.bootstrap, topic)
        java_tools.check("AclCommand", *at, "--add", "--allow-principal", "User:alice",
                         "--operation", "Write", "--topic", "orders",
                         "--resource-pattern-type", "prefixed")  # fmt: skip
        java_tools.check("AclCommand", *at, "--add", "--deny-principal", "User:*",
                         "--operation", "All", "--topic", "orders-eu")  # fmt: skip
        until(DENIED, lambda: User(first, "alice").produce("orders-eu"))
        listed = acl_lines(java_tools, first)
    second = acl_server(reader, tmp_path / "second")
    second.server.using_data_of(first.server)
    with second.server.started():
        assert acl_lines(java_tools, second) == listed
        alice, bob = User(second, "alice"), User(second, "bob")
        until(OK, lambda: alice.produce("orders"))
        assert alice.produce("orders-eu") == alice.produce("payments") == DENIED
        assert bob.produce("orders") == DENIED


def acl_lines(java_tools: JavaTools, server: SaslServer) -> list[str]:
    done = java_tools.check("AclCommand", "--bootstrap-server", server.server.bootstrap, "--list")
    return sorted(line.strip() for line in done.text.splitlines() if line.strip())
