"""New certificates without a restart: the same requests get the same answers and have the same
effect on Lograft and on Apache Kafka."""

import hashlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lograft.client import BrokerError, ConfigChange, Operation, broker_resource
from lograft.client.blocking import Admin
from lograft.model.errors import ErrorCode
from tests.compatibility.servers import HOST, NODE_ID, Kind, Server, free_port, kinds_under_test
from tests.unit.net.certificates import Authority, Identity

pytestmark = [pytest.mark.clients]

OK: Final = None
REJECTED: Final = ErrorCode.INVALID_REQUEST
PASSWORD: Final = "secret"
#: Kafka's brokers apply a change some time after they have answered.
PATIENCE_SECONDS: Final = {"lograft": 1.0, "kafka": 20.0}


class TlsServer:
    """A node with TLS listeners: OUTSIDE with PEM files, STORE with PKCS #12 stores, TEXT with PEM
    text, and INSIDE, with PEM files, between brokers. Settings are changed over a plain one."""

    admin: Admin

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.authority, self.stranger = Authority(), Authority("stranger")
        self.ports = {name: free_port() for name in ("OUTSIDE", "STORE", "TEXT", "INSIDE")}
        self.write("trust.pem", self.authority.pem)
        self.write("both.pem", self.authority.pem + self.stranger.pem)
        self.first_text = self.issue()
        self.server = Server.of(kind, folder / "node")
        addresses = {"PLAINTEXT": self.server.port, **self.ports}
        advertised = ",".join(f"{name}://{HOST}:{port}" for name, port in addresses.items())
        plain = dict.fromkeys(("PLAINTEXT", "CONTROLLER"), "PLAINTEXT")
        security = plain | dict.fromkeys(self.ports, "SSL")
        self.server.settings |= {
            "listeners": f"{advertised},CONTROLLER://{self.server.controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(map(":".join, security.items())),
            "inter.broker.listener.name": "INSIDE",
            **self.pem_store("OUTSIDE"),
            **self.pem_store("INSIDE"),
            "listener.name.inside.ssl.truststore.type": "PEM",
            "listener.name.inside.ssl.truststore.location": str(folder / "trust.pem"),
            # The type is Kafka's default, JKS.
            "listener.name.store.ssl.keystore.location": self.write(
                "first.p12", self.authority.issue().pkcs12(PASSWORD)
            ),
            "listener.name.store.ssl.keystore.password": PASSWORD,
            "listener.name.store.ssl.enabled.protocols": "TLSv1.3",
            "listener.name.text.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "listener.name.text.ssl.keystore.type": "PEM",
            **{
                f"listener.name.text.ssl.{name}": (value or "").replace("\n", " \\\n  ")
                for name, value in pem_text(self.first_text).items()
            },
        }

    def pem_store(self, listener: str) -> dict[str, str]:
        prefix = f"listener.name.{listener.lower()}.ssl.keystore"
        path = self.write(f"{listener}.pem", self.issue().pem())
        return {f"{prefix}.type": "PEM", f"{prefix}.location": path}

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def issue(self, name: str = "localhost", hosts: tuple[str, ...] = ("a", "b")) -> Identity:
        return self.authority.issue(name, hosts)

    def alter(
        self, listener: str, changes: dict[str, str | None], *, prefix: str | None = None
    ) -> ErrorCode | None:
        """None, or the error."""
        if prefix is None:
            prefix = f"listener.name.{listener.lower()}."
        altered = [
            ConfigChange(
                f"{prefix}ssl.{name}", value, Operation.DELETE if value is None else Operation.SET
            )
            for name, value in changes.items()
        ]
        try:
            self.admin.alter_configs({broker_resource(NODE_ID): altered})
        except BrokerError as error:
            return error.code
        return None

    @contextmanager
    def connected(
        self, listener: str, version: ssl.TLSVersion | None = None
    ) -> Iterator[ssl.SSLSocket]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if version is not None:
            context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection((HOST, self.ports[listener]), timeout=10) as connection,
            context.wrap_socket(connection) as channel,
        ):
            yield channel

    def fingerprint(self, listener: str) -> str:
        """The serial number of the certificate that a new connection gets."""
        with self.connected(listener) as channel:
            certificate = channel.getpeercert(binary_form=True)
        assert certificate is not None
        return hashlib.sha256(certificate).hexdigest()

    def suite(self, listener: str, version: ssl.TLSVersion) -> str | None:
        """OpenSSL's name of the cipher suite of a connection; None if the connection fails."""
        try:
            with self.connected(listener, version) as channel:
                suite = channel.cipher()
        except ssl.SSLError:
            return None
        assert suite is not None
        return suite[0]

    def wait_served(self, listener: str, identity: Identity) -> None:
        expected = hashlib.sha256(ssl.PEM_cert_to_DER_cert(identity.certificate_pem())).hexdigest()
        deadline = time.monotonic() + PATIENCE_SECONDS[self.kind]
        while self.fingerprint(listener) != expected:
            assert time.monotonic() < deadline, "the new certificate is not served in time"
            time.sleep(0.02)


def pem_text(identity: Identity) -> dict[str, str | None]:
    return {
        "keystore.key": identity.key_pem().strip(),
        "keystore.certificate.chain": identity.certificate_pem().strip(),
    }


@pytest.fixture(params=kinds_under_test(), scope="module")
def tls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsServer]:
    server = TlsServer(request.param, tmp_path_factory.mktemp("tls"))
    with server.server.started(), Admin(bootstrap_servers=server.server.bootstrap) as server.admin:
        yield server


def test_a_new_file_and_new_content_of_the_same_file(tls: TlsServer) -> None:
    for name in ("new.pem", "new.pem", "newer.pem"):
        identity = tls.issue()
        path = tls.write(name, identity.pem())
        assert tls.alter("OUTSIDE", {"keystore.location": path}) is OK
        tls.wait_served("OUTSIDE", identity)


def test_more_names_in_a_certificate(tls: TlsServer) -> None:
    identity = tls.issue("LOCALHOST", ("a", "b", "c"))
    path = tls.write("more.pem", identity.pem())
    assert tls.alter("OUTSIDE", {"keystore.location": path}) is OK
    tls.wait_served("OUTSIDE", identity)
    fewer = tls.write("fewer.pem", tls.issue().pem())
    assert tls.alter("OUTSIDE", {"keystore.location": fewer}) is REJECTED
    tls.wait_served("OUTSIDE", identity)


Content = Callable[[TlsServer], dict[str, str | None]]


def store_of(content: Callable[[TlsServer], str]) -> Content:
    return lambda tls: {"keystore.location": tls.write("rejected.pem", content(tls))}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(lambda _: {"keystore.location": "/nowhere/x.pem"}, id="missing file"),
        pytest.param(store_of(lambda _: "hello"), id="no PEM file"),
        pytest.param(
            store_of(lambda tls: tls.issue("other", ("a", "b", "c")).pem()), id="another name"
        ),
        pytest.param(
            store_of(lambda tls: tls.issue(hosts=("c",)).pem()), id="fewer alternative names"
        ),
        pytest.param(
            store_of(lambda tls: tls.issue(hosts=("a", "b", "c")).pem(PASSWORD)),
            id="encrypted key without its password",
        ),
        pytest.param(lambda _: {"keystore.password": PASSWORD}, id="password of a PEM store"),
        pytest.param(lambda _: {"key.password": PASSWORD}, id="password of a plain key"),
        pytest.param(
            lambda tls: pem_text(tls.issue(hosts=("a", "b", "c"))), id="both a file and PEM text"
        ),
        pytest.param(
            lambda tls: {
                "truststore.type": "PEM",
                "truststore.location": f"{tls.folder}/trust.pem",
            },
            id="a trust store where there was none",
        ),
    ],
)
def test_rejected_changes(tls: TlsServer, changes: Content) -> None:
    before = tls.fingerprint("OUTSIDE")
    assert tls.alter("OUTSIDE", changes(tls)) is REJECTED
    assert tls.fingerprint("OUTSIDE") == before


def test_stores_belong_to_a_listener(tls: TlsServer) -> None:
    path = tls.write("any.pem", tls.issue().pem())
    assert tls.alter("OUTSIDE", {"keystore.location": path}, prefix="") is REJECTED
    assert tls.alter("NOWHERE", {"keystore.location": "/nowhere"}) is OK


def test_pkcs12_stores(tls: TlsServer) -> None:
    identity = tls.authority.issue()
    path = tls.write("second.p12", identity.pkcs12(PASSWORD))
    assert tls.alter("STORE", {"keystore.location": path}) is OK
    tls.wait_served("STORE", identity)
    assert tls.alter("STORE", {"keystore.password": "wrong"}) is REJECTED
    assert tls.alter("STORE", {"key.password": "wrong"}) is REJECTED
    other = tls.write("third.p12", tls.authority.issue().pkcs12("other"))
    assert tls.alter("STORE", {"keystore.location": other}) is REJECTED
    tls.wait_served("STORE", identity)
    third = tls.authority.issue()
    path = tls.write("third.p12", third.pkcs12("other"))
    changes: dict[str, str | None] = {"keystore.location": path, "keystore.password": "other"}
    assert tls.alter("STORE", changes) is OK
    tls.wait_served("STORE", third)


def test_pem_text(tls: TlsServer) -> None:
    tls.wait_served("TEXT", tls.first_text)
    identity = tls.issue()
    assert tls.alter("TEXT", pem_text(identity)) is OK
    tls.wait_served("TEXT", identity)
    assert tls.alter("TEXT", pem_text(tls.issue("other"))) is REJECTED
    assert tls.alter("TEXT", {"keystore.key": "no key"}) is REJECTED
    assert tls.alter("TEXT", {"keystore.password": PASSWORD}) is REJECTED
    tls.wait_served("TEXT", identity)


def test_only_enabled_versions_and_suites_are_negotiated(tls: TlsServer) -> None:
    older, newest = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    assert tls.suite("OUTSIDE", older)
    assert tls.suite("OUTSIDE", newest)
    assert tls.suite("STORE", older) is None
    assert tls.suite("STORE", newest)
    # Its only suite is one of TLS 1.2.
    assert tls.suite("TEXT", older) == "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert tls.suite("TEXT", newest) is None


def test_brokers_trust_each_other_at_every_step(tls: TlsServer) -> None:
    identity = tls.issue()
    path = tls.write("inside.pem", identity.pem())
    assert tls.alter("INSIDE", {"keystore.location": path}) is OK
    tls.wait_served("INSIDE", identity)
    strange = tls.stranger.issue("localhost", ("a", "b"))
    strange_path = tls.write("strange.pem", strange.pem())
    strange_trust = tls.write("strange-trust.pem", tls.stranger.pem)
    for changes in (
        {"keystore.location": strange_path},
        {"truststore.location": strange_trust},
        {"keystore.location": strange_path, "truststore.location": strange_trust},
    ):
        assert tls.alter("INSIDE", {**changes}) is REJECTED
    tls.wait_served("INSIDE", identity)
    assert tls.alter("INSIDE", {"truststore.location": str(tls.folder / "both.pem")}) is OK
    # Kafka compares with the value in use, which changes a little later.
    deadline = time.monotonic() + PATIENCE_SECONDS[tls.kind]
    while tls.alter("INSIDE", {"keystore.location": strange_path}) is not OK:
        assert time.monotonic() < deadline
    tls.wait_served("INSIDE", strange)
