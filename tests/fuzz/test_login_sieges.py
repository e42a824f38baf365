"""Connections that never authenticate, on listeners with SASL and TLS of a node process: its memory
is bounded, and a client of another listener is served."""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lograft.model.settings.jaas import PLAIN_MODULE
from lograft.wire.headers import frame_request
from lograft.wire.messages.api_versions import ApiVersionsRequest
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.compatibility.readiness import receive_exactly
from tests.compatibility.servers import HOST, free_port
from tests.fuzz.besieged_node import ANSWER_S_MAX, BesiegedNode, is_closed_by_peer
from tests.support.identity_provider import key_set, public_entry, rsa_key
from tests.unit.net.certificates import Authority

pytestmark = pytest.mark.fuzz

MIB = 1 << 20
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: Of lograft.authentication.timeout.ms: slow logins end within a test.
TIMEOUT_MS = 3_000
UNAUTHENTICATED_MAX = 300
LISTENERS = ("SASL", "TLS", "MTLS")


class LoginNode(BesiegedNode):
    """With listeners for SASL, for SASL and TLS, and for TLS with certificates of clients."""

    def __init__(self, folder: Path) -> None:

        super().__init__(folder / "node")
        self.ports = {name: free_port() for name in LISTENERS}
        authority = Authority()
        (folder / "trust.pem").write_text(authority.pem)
        (folder / "node.pem").write_text(authority.issue().pem())
        (folder / "keys.json").write_bytes(key_set(public_entry(rsa_key(), kid="first")))
        addresses = {"PLAINTEXT": self.server.port, **self.ports}
        advertised = ",".join(f"{name}://{HOST}:{port}" for name, port in addresses.items())
        url = f"file://{folder}/keys.json"
        self.server.settings |= {
            "listeners": f"{advertised},CONTROLLER://{self.server.controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ",SASL:SASL_PLAINTEXT,TLS:SASL_SSL,MTLS:SSL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "lograft.oauthbearer.allowed.urls": url,
            "sasl.oauthbearer.expected.issuer": "i",
            "sasl.oauthbearer.expected.audience": "a",
            "lograft.authentication.timeout.ms": str(TIMEOUT_MS),
            "lograft.unauthenticated.connections.max": str(UNAUTHENTICATED_MAX),
            "listener.name.mtls.ssl.client.auth": "required",
        }
        for name in ("tls", "mtls"):
            self.server.settings |= {
                f"listener.name.{name}.ssl.keystore.type": "PEM",
                f"listener.name.{name}.ssl.keystore.location": str(folder / "node.pem"),
                f"listener.name.{name}.ssl.truststore.type": "PEM",
                f"listener.name.{name}.ssl.truststore.location": str(folder / "trust.pem"),
            }
        for name in ("sasl", "tls"):
            self.server.settings[f"listener.name.{name}.plain.sasl.jaas.config"] = (
                f'{PLAIN_MODULE} required user_alice="secret";'
            )
        self.context = ssl.create_default_context(cafile=folder / "trust.pem")
        self.context.check_hostname = False

    def open(self, listener: str) -> socket.socket:
        return socket.create_connection((HOST, self.ports[listener]), timeout=ANSWER_S_MAX)

    def open_tls(self, listener: str) -> ssl.SSLSocket:
        return self.context.wrap_socket(self.open(listener), server_hostname=HOST)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginNode]:
    with LoginNode(tmp_path_factory.mktemp("logins")).started() as started:
        assert isinstance(started, LoginNode)
        yield started


def handshake(mechanism: str) -> bytes:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return frame_request(request, 1, correlation_id=1, client_id="f")


def answer(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, size)


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_thousand_connections_announce_two_gigabytes(node: LoginNode, listener: str) -> None:
    with node.siege(), ExitStack() as stack:
        for _ in range(1_000):
            connection = stack.enter_context(node.open(listener))
            try:
                connection.sendall(struct.pack(">i", 2**31 - 1) + bytes(2_000))
            except ConnectionError:
                continue
        time.sleep(0.2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_messages_that_never_end(node: LoginNode, mechanism: str) -> None:
    """Each connection sends as much of a message as the node accepts, and then nothing."""
    with node.siege(), ExitStack() as stack:
        for _ in range(400):
            connection = stack.enter_context(node.open("SASL"))
            try:
                connection.sendall(handshake(mechanism))
                answer(connection)
                connection.sendall(struct.pack(">i", 500_000) + bytes(400_000))
            except (ConnectionError, AssertionError, OSError):
                continue


def test_huge_tokens_close_the_connection(node: LoginNode) -> None:
    with node.siege():
        for listener in ("SASL", "TLS"):
            for _ in range(50):
                opened = node.open(listener) if listener == "SASL" else node.open_tls(listener)
                with opened as connection:
                    connection.sendall(handshake("OAUTHBEARER"))
                    answer(connection)
                    try:
                        connection.sendall(struct.pack(">i", 500_000) + bytes(500_000))
                    except OSError:
                        continue
                    assert is_closed_by_peer(connection)


def test_half_open_tls_handshakes(node: LoginNode) -> None:
    """A ClientHello without its end, then silence: closed within the time limit."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = node.context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    with node.siege(), ExitStack() as stack:
        connections = [
            stack.enter_context(node.open(listener)) for listener in ("TLS", "MTLS") * 100
        ]
        for number, connection in enumerate(connections):
            connection.sendall(hello[: 1 + number % len(hello)])
        # The time limit of a listener with SASL includes the handshake; that of TLS is longer.
        for connection in connections[:10:2]:
            assert is_closed_by_peer(connection)


def test_slow_logins_are_closed(node: LoginNode) -> None:
    """Every connection sends a byte now and then, so it is never idle."""
    frame = handshake("PLAIN")
    with node.siege(), ExitStack() as stack:
        slow = [stack.enter_context(node.open("SASL")) for _ in range(50)]
        deadline = time.monotonic() + ANSWER_S_MAX
        for number in range(len(frame)):
            closed = 0
            for connection in slow:
                try:
                    connection.sendall(frame[number : number + 1])
                except ConnectionError:
                    closed += 1
            if closed == len(slow) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        assert all(is_closed_by_peer(connection) for connection in slow)


def test_requests_before_authentication(node: LoginNode) -> None:
    frames = [
        struct.pack(">hhih", key, version, 1, -1) + bytes(40)
        for key in range(95)
        for version in (0, 9)
        if key not in (17, 18)
    ]
    with node.siege():
        for frame in frames:
            with node.open("SASL") as connection:
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                assert is_closed_by_peer(connection)


def test_plaintext_on_a_tls_listener(node: LoginNode) -> None:
    frame = frame_request(ApiVersionsRequest(), 0, correlation_id=1, client_id="f")
    with node.siege():
        for listener in ("TLS", "MTLS"):
            with node.open(listener) as connection:
                connection.sendall(frame)
                assert is_closed_by_peer(connection)


def test_a_client_without_a_certificate_is_rejected(node: LoginNode) -> None:
    with node.siege():
        try:
            # With TLS 1.3 the client learns it when it reads.
            with node.open_tls("MTLS") as connection:
                assert is_closed_by_peer(connection)
        except OSError:
            pass
