"""From the settings of a listener to TLS between two nodes."""

from pathlib import Path

import pytest

from lograft.model.broker_configs import BrokerConfig, broker_config
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address
from lograft.net.sockets import SocketTransport
from lograft.net.tls import TlsTransport
from lograft.net.tls_settings import connector_context, listener_context
from tests.unit.net.certificates import make_certificate
from tests.unit.net.test_pem_files import JKS
from tests.unit.net.watching import Accepted, Collector, RunOnLoop

INSIDE = "listener.name.inside."


def config_of(**settings: str) -> BrokerConfig:
    given = {f"{INSIDE}ssl.{name.replace('_', '.')}": value for name, value in settings.items()}
    return broker_config(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "INSIDE://localhost:0,CONTROLLER://localhost:0",
            "listener.security.protocol.map": "INSIDE:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/data",
            **given,
        }
    )


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A key store and trust store in one: key and certificate."""
    folder = tmp_path_factory.mktemp("stores")
    certificate, key = make_certificate(folder)
    both = folder / "both.pem"
    both.write_text(Path(key).read_text() + Path(certificate).read_text())
    return str(both)


async def exchange(config: BrokerConfig, host: str = "localhost") -> bytes:
    """What a node sends to another of the same settings."""
    transport = TlsTransport(
        SocketTransport(),
        server=listener_context(config, "INSIDE"),
        client=connector_context(config, "INSIDE"),
    )
    accepted = Accepted()
    listener = await transport.listen(Address("127.0.0.1", 0), accepted)
    peer = await transport.connect(Address(host, listener.address.port), timeout_ms=5_000)
    at_peer, at_ours = Collector(), Collector()
    peer.start(at_peer)
    ours = await accepted.wait()
    ours.start(at_ours)
    peer.send([b"hello"])
    await at_ours.wait_bytes(5)
    listener.close()
    peer.abort()
    ours.abort()
    await at_peer.wait_closed()
    await at_ours.wait_closed()
    return bytes(at_ours.received)


def test_nodes_with_the_same_stores_trust_each_other(on_loop: RunOnLoop, pem: str) -> None:
    config = config_of(
        keystore_type="PEM", keystore_location=pem, truststore_type="PEM",
        truststore_location=pem, client_auth="required",
    )  # fmt: skip
    assert on_loop(exchange(config)) == b"hello"


def test_stores_that_cannot_be_read_are_named(pem: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.type is JKS"):
        connector_context(config_of(truststore_type="JKS", truststore_location="/x"), "INSIDE")
    missing = config_of(truststore_type="PEM", truststore_location="/does/not/exist")
    with pytest.raises(InvalidConfig, match="/does/not/exist cannot be read: No such file"):
        connector_context(missing, "INSIDE")


def test_java_stores_are_told_from_pem(tmp_path: Path) -> None:
    store = tmp_path / "node.jks"
    store.write_bytes(JKS)
    given = config_of(keystore_type="PEM", keystore_location=str(store))
    with pytest.raises(InvalidConfig, match=r"INSIDE: ssl\.keystore\.location: .* \(JKS\)"):
        listener_context(given, "INSIDE")


def test_host_names_are_compared_unless_told_otherwise(pem: str) -> None:
    stores = {"truststore_type": "PEM", "truststore_location": pem}
    assert connector_context(config_of(**stores), "INSIDE").check_hostname
    lax = config_of(**stores, endpoint_identification_algorithm="")
    assert not connector_context(lax, "INSIDE").check_hostname
