"""Clients log in with SASL: the same on Lograft and on Apache Kafka."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from lograft.client import broker_resource
from lograft.client.blocking import Admin
from lograft.model.errors import ErrorCode
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.sasl_servers import (
    CANARY,
    CLIENTS,
    MECHANISMS,
    PASSWORDS,
    SHA_256,
    SHA_512,
    LoginFailed,
    SaslServer,
    deletion,
    started,
    upsertion,
)
from tests.compatibility.servers import NODE_ID, kinds_under_test

pytestmark = pytest.mark.clients


@pytest.fixture(params=kinds_under_test(), scope="module")
def sasl(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslServer]:
    yield from started(SaslServer(request.param, tmp_path_factory.mktemp("sasl")))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL", "TLS"])
def test_clients_log_in(sasl: SaslServer, listener: str, mechanism: str, client: str) -> None:
    CLIENTS[client](sasl, listener, mechanism, "alice", PASSWORDS["alice"])


# The others retry until they time out.
@pytest.mark.parametrize("client", ["librdkafka", "lograft"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "eve"])
def test_clients_with_a_wrong_password_are_told(
    sasl: SaslServer, mechanism: str, client: str, user: str
) -> None:
    with pytest.raises(LoginFailed, match=r"[Aa]uthentication"):
        CLIENTS[client](sasl, "SASL", mechanism, user, "wrong")


@pytest.mark.parametrize("client", ["librdkafka", "lograft"])
def test_names_with_special_characters(sasl: SaslServer, client: str) -> None:
    CLIENTS[client](sasl, "SASL", "SCRAM-SHA-256", "bob, =", PASSWORDS["bob, ="])


def test_a_removed_user_cannot_log_in(sasl: SaslServer) -> None:
    sasl.add_user("carol", "pencil")
    CLIENTS["lograft"](sasl, "SASL", "SCRAM-SHA-256", "carol", "pencil")
    sasl.alter_users(deletion("carol"))
    with pytest.raises(LoginFailed):
        CLIENTS["lograft"](sasl, "SASL", "SCRAM-SHA-256", "carol", "pencil")
    CLIENTS["lograft"](sasl, "SASL", "SCRAM-SHA-512", "carol", "pencil")
    sasl.add_user("carol", "crayon", iterations=8192)
    with pytest.raises(LoginFailed):
        CLIENTS["lograft"](sasl, "SASL", "SCRAM-SHA-512", "carol", "pencil")
    CLIENTS["lograft"](sasl, "SASL", "SCRAM-SHA-256", "carol", "crayon")
    assert sasl.users()["carol"] == {SHA_256: 8192, SHA_512: 8192}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion("dave", "x", 4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("dave", "x", 16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([deletion("dave")], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsertion("dave", "x"), upsertion("dave", "y")], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_changes_of_users_that_are_rejected(
    sasl: SaslServer, changes: list[object], code: ErrorCode
) -> None:
    with pytest.raises(KafkaException) as raised:
        sasl.alter_users(*changes)
    assert raised.value.args[0].code() == code
    assert "dave" not in sasl.users()


# ── raw connections ──────────────────────────────────────────────────────────────────────────────

API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
PLAIN = struct.pack(">h", 5) + b"PLAIN"
ALICE = f"\0alice\0{PASSWORDS['alice']}".encode()


def request(key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", key, version, 7, 0) + body


def send(connection: socket.socket, frame: bytes) -> bytes | None:
    """The response; None if the server closed the connection."""
    try:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = receive(connection, 4)
        return None if size is None else receive(connection, int.from_bytes(size, "big"))
    except ConnectionError:
        return None


def receive(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def code_of(response: bytes | None) -> ErrorCode | None:
    return (
        None if response is None else ErrorCode(int.from_bytes(response[4:6], "big", signed=True))
    )


def token(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


CLOSED = None
#: The requests of a connection, and the code of the response to the last one.
EXCHANGES = {
    "PLAIN": (
        [request(HANDSHAKE, 1, PLAIN), request(AUTHENTICATE, 1, token(ALICE))],
        ErrorCode.NONE,
    ),
    "wrong password": (
        [request(HANDSHAKE, 1, PLAIN), request(AUTHENTICATE, 1, token(b"\0alice\0x"))],
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    ),
    "another authorization id": (
        [request(HANDSHAKE, 1, PLAIN), request(AUTHENTICATE, 1, token(b"bob" + ALICE))],
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    ),
    "versions twice": ([request(API_VERSIONS, 0, b"")] * 2, CLOSED),
    "versions after the handshake": (
        [request(HANDSHAKE, 1, PLAIN), request(API_VERSIONS, 0, b"")],
        "ILLEGAL",
    ),
    "unsupported mechanism": (
        [request(HANDSHAKE, 1, struct.pack(">h", 6) + b"GSSAPI")],
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ),
    "handshake twice": ([request(HANDSHAKE, 1, PLAIN)] * 2, ErrorCode.ILLEGAL_SASL_STATE),
    "no handshake": ([request(AUTHENTICATE, 1, token(ALICE))], CLOSED),
    "metadata first": ([request(METADATA, 1, token(b"")[:4])], CLOSED),
    "handshake after login": (
        [
            request(HANDSHAKE, 1, PLAIN),
            request(AUTHENTICATE, 1, token(ALICE)),
            request(HANDSHAKE, 1, PLAIN),
        ],
        ErrorCode.ILLEGAL_SASL_STATE,
    ),
    "authenticate after login": (
        [
            request(HANDSHAKE, 1, PLAIN),
            request(AUTHENTICATE, 1, token(ALICE)),
            request(AUTHENTICATE, 1, token(ALICE)),
        ],
        ErrorCode.ILLEGAL_SASL_STATE,
    ),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_orders_of_requests(sasl: SaslServer, name: str) -> None:
    frames, expected = EXCHANGES[name]
    with sasl.connect() as connection:
        *before, last = frames
        for frame in before:
            assert code_of(send(connection, frame)) == ErrorCode.NONE
        response = send(connection, last)
        if expected == "ILLEGAL":
            # Kafka parses the request and responds in its format; Lograft only closes.
            assert sasl.kind == "kafka" or response is CLOSED
        else:
            assert code_of(response) is expected
        if name.endswith("login") or name == "PLAIN":
            assert send(connection, request(METADATA, 1, token(b"")[:4])) is not CLOSED
        else:
            assert receive(connection, 1) in (None, b"")


def test_messages_without_headers(sasl: SaslServer) -> None:
    with sasl.connect() as connection:
        assert code_of(send(connection, request(HANDSHAKE, 0, PLAIN))) == ErrorCode.NONE
        assert send(connection, ALICE) == b""
        assert send(connection, request(METADATA, 1, token(b"")[:4])) is not CLOSED
    with sasl.connect() as connection:
        assert code_of(send(connection, request(HANDSHAKE, 0, PLAIN))) == ErrorCode.NONE
        assert send(connection, b"\0alice\0x") is CLOSED


def test_a_large_frame_before_authentication_closes_the_connection(sasl: SaslServer) -> None:
    with sasl.connect() as connection:
        connection.sendall(struct.pack(">i", 600_000))
        assert receive(connection, 1) is CLOSED


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────


def test_no_secret_is_logged_or_described(sasl: SaslServer) -> None:
    """Runs last: everything else has been logged."""
    with Admin(bootstrap_servers=sasl.server.bootstrap) as admin:
        described = admin.describe_configs([broker_resource(NODE_ID)])
    assert CANARY not in repr(described)
    log = sasl.server.log_path.read_text()
    assert CANARY not in log
    if sasl.kind == "lograft":
        assert "event=login outcome=success principal=User:alice mechanism=PLAIN" in log


# ── Kafka's own tools ────────────────────────────────────────────────────────────────────────────


@pytest.mark.interop
def test_kafka_configs_manages_users(
    sasl: SaslServer, java_tools: JavaTools, tmp_path: Path
) -> None:
    address = ("--bootstrap-server", sasl.server.bootstrap)
    user = ("--entity-type", "users", "--entity-name", "frank")
    # Kafka rejects both in one request.
    for scram in (
        "SCRAM-SHA-256=[iterations=8192,password=pencil]",
        "SCRAM-SHA-512=[password=pencil]",
    ):
        java_tools.check("ConfigCommand", *address, *user, "--alter", "--add-config", scram)
    described = java_tools.check("ConfigCommand", *address, *user, "--describe").text
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    for mechanism in MECHANISMS[1:]:
        login = client_file(tmp_path, mechanism, "frank", "pencil")
        listed = java_tools.run(
            "TopicCommand",
            "--bootstrap-server",
            sasl.address(),
            "--list",
            "--command-config",
            login,
        )
        assert listed.code == 0, listed.text
    for mechanism in MECHANISMS[1:]:
        delete = ("--alter", "--delete-config", mechanism)
        java_tools.check("ConfigCommand", *address, *user, *delete)
    described = java_tools.check("ConfigCommand", *address, *user, "--describe").text
    assert "SCRAM" not in described


def client_file(folder: Path, mechanism: str, user: str, password: str) -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path = folder / f"{mechanism}-{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required"
        f' username="{user}" password="{password}";\n'
        "request.timeout.ms=10000\ndefault.api.timeout.ms=10000\n"
    )
    return str(path)


@pytest.mark.interop
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_log_in(
    sasl: SaslServer, java_tools: JavaTools, tmp_path: Path, mechanism: str
) -> None:
    def list_topics(password: str) -> tuple[int, str]:
        login = client_file(tmp_path, mechanism, "alice", password)
        listed = java_tools.run(
            "TopicCommand",
            "--bootstrap-server",
            sasl.address(),
            "--list",
            "--command-config",
            login,
        )
        return listed.code, listed.text

    code, text = list_topics(PASSWORDS["alice"])
    assert code == 0, text
    code, text = list_topics("wrong")
    assert code == 1
    assert "SaslAuthenticationException: Authentication failed" in text


@pytest.mark.interop
def test_users_that_storage_format_adds(tmp_path: Path) -> None:
    for kind in kinds_under_test():
        (tmp_path / kind).mkdir()
        server = SaslServer(kind, tmp_path / kind)
        server.server.format_arguments = (
            "--add-scram",
            "SCRAM-SHA-256=[name=root,password=pencil]",
        )
        with server.server.started():
            CLIENTS["lograft"](server, "SASL", "SCRAM-SHA-256", "root", "pencil")
            with pytest.raises(LoginFailed):
                CLIENTS["lograft"](server, "SASL", "SCRAM-SHA-256", "root", "crayon")
