"""TLS between real nodes and clients, with certificates that are replaced at run time."""

import socket
import ssl
import time
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from lograft import node as node_module
from lograft.client import BrokerError, ConfigChange, broker_resource
from lograft.client.blocking import Admin, Producer
from lograft.model.errors import ErrorCode
from lograft.testing import Cluster
from tests.support.waiting import wait_until
from tests.unit.net.certificates import Authority, Identity

#: The listener for clients and brokers; `Cluster` names it PLAINTEXT, but here it uses TLS.
PREFIX = "listener.name.plaintext.ssl."
CONTROLLER_PREFIX = "listener.name.controller.ssl."


class TlsNodes:
    """A cluster whose listeners use TLS and require client certificates."""

    def __init__(self, folder: Path, nodes: int, **properties: str) -> None:
        self.nodes = nodes
        self.key_file, self.trust_file = folder / "node.pem", folder / "trust.pem"
        self.authority = Authority()
        self.identity = self.write(self.authority.issue())
        self.trust_file.write_text(self.authority.pem)
        self.cluster = Cluster(
            nodes,
            properties={
                "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.key_file),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trust_file),
                "ssl.client.auth": "required",
                "min.insync.replicas": str(nodes),
                **{name.replace("_", "."): value for name, value in properties.items()},
            },
        )

    def write(self, identity: Identity) -> Identity:
        self.key_file.write_text(identity.pem())
        return identity

    def client_settings(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.trust_file),
            "ssl.keystore.location": str(self.key_file),
        }

    def reload_store(self, store: str) -> None:
        """Sets the location to its present value, on each broker and for each listener."""
        path = str(self.key_file if store == "keystore" else self.trust_file)
        changes = [
            ConfigChange(f"{prefix}{store}.{name}", value)
            for prefix in (PREFIX, CONTROLLER_PREFIX)
            for name, value in (("type", "PEM"), ("location", path))
        ]
        with Admin(self.client_settings()) as admin:
            for node_id in range(1, self.nodes + 1):
                admin.alter_configs({broker_resource(node_id): changes})

    def fetch_certificate(self, node_id: int, listener: str = "PLAINTEXT") -> bytes:
        """Returns the server certificate of a new connection."""
        address = self.cluster.call(node_id, lambda node: node.addresses)[listener]
        context = ssl.create_default_context(cafile=str(self.trust_file))
        context.load_cert_chain(self.key_file)
        with (
            socket.create_connection((address.host, address.port), timeout=10) as connection,
            context.wrap_socket(connection, server_hostname="localhost") as channel,
        ):
            certificate = channel.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


def der_of(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_pem())


def test_a_new_certificate_is_used_immediately_and_connections_continue(tmp_path: Path) -> None:
    nodes = TlsNodes(tmp_path, 1)
    with nodes.cluster as cluster, Producer(nodes.client_settings()) as producer:
        cluster.create_topic("t")
        assert producer.send("t", "before").offset == 0
        assert nodes.fetch_certificate(1) == der_of(nodes.identity)
        second = nodes.write(nodes.authority.issue())
        # The new file has no effect until the setting is changed.
        assert nodes.fetch_certificate(1) == der_of(nodes.identity)
        nodes.reload_store("keystore")
        start = time.monotonic()
        assert (
            nodes.fetch_certificate(1) == nodes.fetch_certificate(1, "CONTROLLER") == der_of(second)
        )
        assert time.monotonic() - start < 1
        assert producer.send("t", "after").offset == 1


def test_a_rejected_change_keeps_the_old_certificate(tmp_path: Path) -> None:
    nodes = TlsNodes(tmp_path, 1)
    with nodes.cluster, Admin(nodes.client_settings()) as admin:
        change = ConfigChange(f"{PREFIX}keystore.location", str(tmp_path / "nowhere.pem"))
        with pytest.raises(BrokerError, match=r"nowhere\.pem cannot be read: No such") as rejected:
            admin.alter_configs({broker_resource(1): [change]})
        assert rejected.value.code is ErrorCode.INVALID_REQUEST
        assert nodes.fetch_certificate(1) == der_of(nodes.identity)
        found = admin.describe_configs([broker_resource(1)], names=[change.name])
        assert found[broker_resource(1)] == {}


def test_a_deleted_store_keeps_the_certificate_and_is_reported(tmp_path: Path) -> None:
    nodes = TlsNodes(tmp_path, 1)
    with nodes.cluster, Admin(nodes.client_settings()) as admin:
        broker = broker_resource(1)
        second = tmp_path / "second.pem"
        second.write_text(nodes.authority.issue().pem())
        change = ConfigChange(f"{PREFIX}keystore.location", str(second))
        kind = ConfigChange(f"{PREFIX}keystore.type", "PEM")
        admin.alter_configs({broker: [change, kind]})
        certificate = nodes.fetch_certificate(1)
        second.unlink()
        admin.alter_configs({broker: [ConfigChange("log.cleaner.threads", "2")]})
        with pytest.raises(BrokerError, match=r"second\.pem cannot be read"):
            admin.alter_configs({broker: [change]})
        assert nodes.fetch_certificate(1) == certificate
        (failure,) = admin.describe_skipped_configs([1])[1]
        assert failure.startswith("ssl.* of listener PLAINTEXT: ssl.keystore.location: ")


def test_brokers_switch_to_another_certificate_authority(tmp_path: Path) -> None:
    nodes = TlsNodes(tmp_path, 2)
    other = Authority("another ca")
    with nodes.cluster as cluster:
        cluster.create_topic("t", replication_factor=2)
        with Producer(nodes.client_settings()) as producer:
            assert producer.send("t", "first").offset == 0
            nodes.trust_file.write_text(nodes.authority.pem + other.pem)
            nodes.reload_store("truststore")
            second = nodes.write(other.issue())
            nodes.reload_store("keystore")
            nodes.trust_file.write_text(other.pem)
            nodes.reload_store("truststore")
            # Uses the connections that the old authority authenticated.
            assert producer.send("t", "second").offset == 1
        for listener in ("PLAINTEXT", "CONTROLLER"):
            assert (
                nodes.fetch_certificate(1, listener)
                == nodes.fetch_certificate(2, listener)
                == der_of(second)
            )
        # Both nodes have to connect again, one of them without having been restarted.
        cluster.stop(2)
        cluster.start(2)
        with Producer(nodes.client_settings()) as producer:
            assert producer.send("t", "third").offset == 2


def test_the_http_listener_uses_the_tls_settings(tmp_path: Path) -> None:
    nodes = TlsNodes(tmp_path, 1, lograft_http_listeners="https://localhost:0")
    with nodes.cluster as cluster:
        (url,) = cluster.call(1, lambda node: list(node.http_urls))
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(nodes.trust_file))
        with pytest.raises(OSError, match=r"certificate required|Connection reset"):
            urlopen(f"{url}/health/ready", context=context, timeout=10).read()
        context.load_cert_chain(nodes.key_file)
        with urlopen(f"{url}/health/ready", context=context, timeout=10) as response:
            assert response.read() == b'{"status":"ready","reasons":[]}'
        port = urlsplit(url).port
        with pytest.raises((OSError, HTTPException)):
            urlopen(f"http://localhost:{port}/health/ready", timeout=10).read()


def test_there_is_no_http_listener_unless_it_is_configured() -> None:
    with Cluster() as cluster:
        assert cluster.call(1, lambda node: list(node.http_urls)) == []


def test_renewed_files_are_used_for_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "CERTIFICATE_CHECK_SECONDS", 0.01)
    nodes = TlsNodes(tmp_path, 1)
    calls = []

    def renew() -> bool:
        calls.append(nodes.identity)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        if len(calls) == 2:
            nodes.identity = nodes.write(nodes.authority.issue())
        return len(calls) == 2

    with nodes.cluster as cluster:
        first = nodes.fetch_certificate(1)
        cluster.call(1, lambda node: node.follow_certificates(renew))
        wait_until(lambda: len(calls) > 2)
        assert nodes.fetch_certificate(1) == der_of(nodes.identity) != first
