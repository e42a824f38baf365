"""Certificate rotation for the connections of a running node."""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.metrics import value_of
from lograft.model.seams import Address
from lograft.model.settings.broker import BrokerConfig, with_dynamic
from lograft.net.sockets import SocketTransport
from lograft.net.tls import TlsChannel
from lograft.net.tls_rotation import HANDSHAKES, HANDSHAKES_FAILED, TlsTransports
from tests.support.scenarios import scenario
from tests.unit.net.certificates import Authority, Identity
from tests.unit.net.event_loops import run_on_loop
from tests.unit.net.receivers import Accepted, Collector
from tests.unit.net.test_tls_settings import PEM_STORES, PREFIX, config_of

OUTSIDE = "listener.name.outside."
#: The settings that requests change in these tests.
STORES = [f"{prefix}ssl.keystore.location" for prefix in (PREFIX, OUTSIDE, "listener.name.added.")]


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_pem())


class Rotation:
    """A node with two TLS listeners, INSIDE between brokers and OUTSIDE for clients."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder = folder
        self.authority = Authority()
        self.key_file, self.trust_file = folder / "node.pem", folder / "trust.pem"
        self.first = self.write(self.authority.issue())
        self.trust_file.write_text(self.authority.pem)
        locations = {
            "ssl.keystore.location": str(self.key_file),
            "ssl.truststore.location": str(self.trust_file),
        }
        static = {**PEM_STORES, **locations, **more}
        self.config = config_of(static, prefix="")
        self.transports = TlsTransports(SocketTransport(), self.config)

    def write(self, identity: Identity, name: str = "node.pem") -> Identity:
        (self.folder / name).write_text(identity.pem())
        return identity

    def dynamic(self, **values: str) -> BrokerConfig:
        """`location="x"` is listener.name.inside.ssl.keystore.location."""
        named = {f"{PREFIX}ssl.keystore.{name}": value for name, value in values.items()}
        return with_dynamic(self.config, default={}, broker=named)

    def rejected(self, config: BrokerConfig) -> str:
        """Returns the reason; checks that neither a check nor a reload changes the transports."""
        before = self.contexts()
        with pytest.raises(InvalidConfig) as caught:
            self.transports.check(config, STORES)
        self.transports.reload(config)
        assert self.contexts() == before
        return str(caught.value)

    def contexts(self) -> list[ssl.SSLContext | None]:
        used = [self.transports.transport(name) for name in ("INSIDE", "OUTSIDE")]
        return [context for each in used for context in (each.server, each.client)]


@pytest.fixture
def rotation(tmp_path: Path) -> Rotation:
    return Rotation(tmp_path)


class Connections:
    """Connections to the INSIDE listener of a node, from another node with the same settings."""

    def __init__(self, rotation: Rotation) -> None:
        self._transport = rotation.transports.transport("INSIDE")
        self._accepted = Accepted()
        self._opened = 0

    async def __aenter__(self) -> "Connections":
        self._listener = await self._transport.listen(Address("127.0.0.1", 0), self._accepted)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()

    async def open(self) -> "Connection":
        address = Address("localhost", self._listener.address.port)
        client = await self._transport.connect(address, timeout_ms=5_000)
        self._opened += 1
        server = await self._accepted.wait(self._opened)
        assert isinstance(client, TlsChannel)
        assert isinstance(server, TlsChannel)
        return Connection(client, server)


class Connection:
    def __init__(self, client: TlsChannel, server: TlsChannel) -> None:
        self.client, self.server = client, server
        self.at_client, self.at_server = Collector(), Collector()

    def start(self) -> None:
        self.server.start(self.at_server)
        self.client.start(self.at_client)

    async def exchange(self, data: bytes) -> None:
        received = len(self.at_server.received)
        self.client.send([data])
        await self.at_server.wait_bytes(received + len(data))

    async def close(self) -> None:
        self.client.abort()
        self.server.abort()
        await self.at_client.wait_closed()
        await self.at_server.wait_closed()


@scenario(run_on_loop)
async def test_new_connections_get_the_new_certificate(rotation: Rotation) -> None:
    async with Connections(rotation) as connections:
        old, waiting = await connections.open(), await connections.open()
        old.start()
        await old.exchange(b"hello")
        second = rotation.write(rotation.authority.issue())
        rotation.transports.check(rotation.config, STORES)
        rotation.transports.reload(rotation.config)
        # Accepted before, but its handshake had not started.
        waiting.start()
        new = await connections.open()
        new.start()
        for connection in (waiting, new, old):
            await connection.exchange(b"hello again")
        assert old.client.peer_certificate() == der(rotation.first)
        assert waiting.client.peer_certificate() == der(second)
        assert new.client.peer_certificate() == der(second)
        for connection in (waiting, new, old):
            await connection.close()


@scenario(run_on_loop)
async def test_new_certificate_is_used_for_connections_to_other_nodes(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path, **{"ssl.client.auth": "required"})

    async with Connections(rotation) as connections:
        second = rotation.write(rotation.authority.issue())
        rotation.transports.reload(rotation.config)
        new = await connections.open()
        new.start()
        await new.exchange(b"hello")
        assert new.server.peer_certificate() == der(second)
        await new.close()


def test_change_of_one_listener_does_not_affect_others(rotation: Rotation) -> None:
    inside, outside = (rotation.transports.transport(name) for name in ("INSIDE", "OUTSIDE"))
    before = (inside.server, inside.client, outside.server)
    rotation.write(rotation.authority.issue(), "second.pem")
    rotation.transports.reload(rotation.dynamic(location=str(rotation.folder / "second.pem")))
    assert outside.server is before[2]
    assert inside.server is not before[0]
    assert inside.client is not before[1]


def test_reload_without_changes_keeps_the_contexts(rotation: Rotation) -> None:
    before = rotation.contexts()
    rotation.transports.reload(rotation.config)
    assert rotation.contexts() == before


def test_versions_are_reloaded_too(rotation: Rotation) -> None:
    changed = with_dynamic(
        rotation.config, default={}, broker={f"{OUTSIDE}ssl.enabled.protocols": "TLSv1.3"}
    )
    rotation.transports.reload(changed)
    server = rotation.transports.transport("OUTSIDE").server
    assert server is not None
    assert server.minimum_version is ssl.TLSVersion.TLSv1_3


def mismatch(rotation: Rotation) -> str:
    key, certificate = rotation.authority.issue(), rotation.authority.issue()
    return key.key_pem() + certificate.certificate_pem()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda rotation: None, "cannot be read: No such file"),
        (lambda rotation: "hello", "neither a PEM file nor a PKCS #12 store"),
        (mismatch, "the private key does not belong to the first certificate"),
        (
            lambda rotation: rotation.authority.issue().pem("geheim"),
            "the private key is encrypted and ssl.key.password is missing",
        ),
        (
            lambda rotation: rotation.authority.issue("other").pem(),
            "the distinguished name of the new certificate, CN=other, differs from that of the old",
        ),
        (
            lambda rotation: rotation.authority.issue("localhost", ["127.0.0.1", "x"]).pem(),
            "lacks subject alternative names of the old one, DNSName:localhost: use",
        ),
        (lambda rotation: Authority().issue().pem(), "brokers could not connect to each other"),
    ],
)
def test_invalid_stores_are_rejected(
    rotation: Rotation, content: Callable[[Rotation], str | None], reason: str
) -> None:
    path = rotation.folder / "new.pem"
    text = content(rotation)
    if text is not None:
        path.write_text(text)
    message = rotation.rejected(rotation.dynamic(location=str(path)))
    assert message.startswith("listener INSIDE: ")
    assert reason in message


def test_names_may_be_added_in_any_case(rotation: Rotation) -> None:
    hosts = ["localhost", "127.0.0.1", "more"]
    rotation.write(rotation.authority.issue("LOCALhost", hosts))
    before = rotation.contexts()
    rotation.transports.check(rotation.config, STORES)
    rotation.transports.reload(rotation.config)
    assert rotation.contexts() != before


@pytest.mark.parametrize(
    ("setting", "name", "hosts"),
    [
        ("ssl.allow.dn.changes", "other", ["localhost", "127.0.0.1"]),
        ("ssl.allow.san.changes", "localhost", []),
        (f"{PREFIX}ssl.allow.dn.changes", "other", ["localhost", "127.0.0.1"]),
    ],
)
def test_settings_allow_other_names(
    tmp_path: Path, setting: str, name: str, hosts: list[str]
) -> None:
    rotation = Rotation(tmp_path, **{setting: "true"})
    rotation.write(rotation.authority.issue(name, hosts))
    rotation.transports.check(rotation.config, [f"{PREFIX}ssl.keystore.location"])
    # But not the other kind of change.
    other = ("another", []) if hosts else ("another", ["localhost"])
    rotation.write(rotation.authority.issue(*other))
    rotation.rejected(rotation.config)


def test_authority_is_replaced_in_three_steps(rotation: Rotation) -> None:
    """Nodes with the old and with the new stores must trust each other at any time."""
    other = Authority("another ca")
    rotation.trust_file.write_text(other.pem)
    with pytest.raises(InvalidConfig, match="INSIDE: brokers could not connect to each other"):
        rotation.transports.check(rotation.config, STORES)
    rotation.trust_file.write_text(rotation.authority.pem + other.pem)
    rotation.transports.check(rotation.config, STORES)
    rotation.transports.reload(rotation.config)
    rotation.write(other.issue())
    rotation.transports.check(rotation.config, STORES)
    rotation.transports.reload(rotation.config)
    rotation.trust_file.write_text(other.pem)
    rotation.transports.check(rotation.config, STORES)


def test_stores_are_not_added_or_removed(tmp_path: Path, rotation: Rotation) -> None:
    without = config_of({**PEM_STORES, "ssl.keystore.location": str(rotation.key_file)}, prefix="")
    without = with_dynamic(
        without,
        default={},
        broker={f"{PREFIX}ssl.truststore.location": str(rotation.trust_file)},
    )
    transports = TlsTransports(SocketTransport(), without)
    added = with_dynamic(
        without,
        default={},
        broker={
            f"{PREFIX}ssl.truststore.location": str(rotation.trust_file),
            f"{OUTSIDE}ssl.truststore.location": str(rotation.trust_file),
        },
    )
    with pytest.raises(InvalidConfig, match="OUTSIDE: a trust store cannot be added without a re"):
        transports.check(added, STORES)
    removed = with_dynamic(
        rotation.config, default={}, broker={f"{OUTSIDE}ssl.keystore.location": ""}
    )
    assert "key store cannot be removed" in rotation.rejected(removed)


def test_dynamic_settings_of_an_earlier_run_need_no_old_names(rotation: Rotation) -> None:
    rotation.write(rotation.authority.issue("other", ["other"]))
    before = rotation.contexts()
    rotation.transports.reload(rotation.config, is_start=True)
    assert rotation.contexts() != before


def test_failed_reload_is_logged_once_and_does_not_affect_others(
    rotation: Rotation, caplog: pytest.LogCaptureFixture
) -> None:
    missing = {f"{PREFIX}ssl.keystore.location": "/nowhere"}
    config = with_dynamic(rotation.config, default={}, broker=missing)
    rotation.transports.reload(config)
    rotation.write(rotation.authority.issue())
    inside, outside = (rotation.transports.transport(name) for name in ("INSIDE", "OUTSIDE"))
    before = (inside.server, outside.server)
    rotation.transports.reload(config)
    assert inside.server is before[0]
    assert outside.server is not before[1]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].getMessage() == (
        "listener INSIDE: ssl.keystore.location: /nowhere cannot be read: No such file or"
        " directory; the listener keeps its old TLS settings"
    )


def test_damaged_store_does_not_prevent_other_changes(rotation: Rotation) -> None:
    rotation.key_file.unlink()
    for named in ([], ["log.retention.ms"], [f"{PREFIX}max.connections"]):
        rotation.transports.check(rotation.config, named)
    for name in (f"{PREFIX}ssl.key.password", "ssl.client.auth"):
        with pytest.raises(InvalidConfig, match=r"INSIDE: .* cannot be read"):
            rotation.transports.check(rotation.config, [name])
    rotation.transports.reload(rotation.config)
    assert len(rotation.transports.failures) == 2
    assert rotation.transports.failures[0].startswith(
        "ssl.* of listener INSIDE: ssl.keystore.location: "
    )
    rotation.write(rotation.authority.issue())
    rotation.transports.reload(rotation.config)
    assert rotation.transports.failures == []


def test_node_that_cannot_connect_to_its_peers_does_not_start(rotation: Rotation) -> None:
    rotation.trust_file.write_text(Authority().pem)
    with pytest.raises(InvalidConfig, match="INSIDE: brokers could not connect to each other"):
        TlsTransports(SocketTransport(), rotation.config)


def test_listener_that_dynamic_settings_add_and_remove(rotation: Rotation) -> None:
    transports, static = rotation.transports, rotation.config
    added = "listener.name.added.ssl.keystore.location"
    more = {"listeners": "ADDED://:9099", "listener.security.protocol.map": "ADDED:SSL"}
    values = {name: f"{static.raw[name]},{text}" for name, text in more.items()}
    missing = with_dynamic(static, default={}, broker=values | {added: "/nowhere"})
    with pytest.raises(InvalidConfig, match="ADDED"):
        transports.check_new("ADDED", missing)
    with pytest.raises(InvalidConfig, match="ADDED"):
        transports.open("ADDED", missing)
    rotation.write(rotation.authority.issue("added", ["added"]), "added.pem")
    config = with_dynamic(
        static, default={}, broker=values | {added: str(rotation.folder / "added.pem")}
    )
    transports.check_new("ADDED", config)
    opened = transports.open("ADDED", config)
    assert opened.server is not None
    assert transports.open("ADDED", config) is opened
    # While it is open, its certificates are rotated by the same rules as those of the others.
    assert "cannot be removed" in rotation.rejected(
        with_dynamic(static, default={}, broker=values | {added: ""})
    )
    # Once it is closed, its certificates are forgotten.
    transports.check(static, STORES)
    transports.reload(static)
    with pytest.raises(KeyError):
        transports.transport("ADDED")


@scenario(run_on_loop)
async def test_handshakes_are_counted_by_listener(rotation: Rotation) -> None:
    def counts() -> tuple[float, float]:
        transports = rotation.transports
        return (
            value_of(transports, HANDSHAKES, "INSIDE"),
            value_of(transports, HANDSHAKES_FAILED, "INSIDE"),
        )

    async with Connections(rotation) as connections:
        assert counts() == (0, 0)
        connection = await connections.open()
        connection.start()
        await connection.exchange(b"hello")
        await connection.close()
        assert counts() == (1, 0)
        # Its peer disconnects instead of sending the first message.
        silent = await connections.open()
        silent.server.start(silent.at_server)
        silent.client.abort()
        await silent.at_server.wait_closed()
        assert counts() == (1, 1)
