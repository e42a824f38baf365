"""Clients that authenticate with certificates: their principals, and certificates that are rejected
at once, with one line in the security log."""

import logging
import socket
import ssl
from pathlib import Path

import pytest

from lograft.client import BrokerError, ConfigChange, broker_resource
from lograft.client.blocking import Admin, Producer
from lograft.metadata.types import ControllerResult
from lograft.model.errors import InvalidConfig
from lograft.net.revocation_lists import read_revocation_lists
from lograft.net.tls_stores import pem_block
from lograft.node import Node
from lograft.testing import Cluster
from lograft.testing.node_thread import NodeFailed
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from tests.unit.net.certificates import Authority, Identity

PREFIX = "listener.name.plaintext."
CRL_SETTING = f"{PREFIX}lograft.ssl.crl.location"


class Nodes:
    """One node whose listener for clients has TLS."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.authority = Authority()
        self.trust_file = folder / "trust.pem"
        self.trust_file.write_text(self.authority.pem)
        self.crl_file = folder / "revoked.crl"
        key_file = self.write("node", self.authority.issue())
        self.cluster = Cluster(
            1,
            properties={
                "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(key_file),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trust_file),
                "ssl.client.auth": "required",
                **{name.replace("__", "."): value for name, value in settings.items()},
            },
        )

    def write(self, name: str, identity: Identity) -> Path:
        path = self.folder / f"{name}.pem"
        path.write_text(identity.pem())
        return path

    def settings_of(self, name: str, identity: Identity | None) -> dict[str, str]:
        return {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.trust_file),
            **(
                {}
                if identity is None
                else {"ssl.keystore.location": str(self.write(name, identity))}
            ),
        }

    def connect(self, identity: Identity | None) -> None:
        """Raises ssl.SSLError if the node rejects the certificate."""
        address = self.cluster.call(1, lambda node: node.addresses)["PLAINTEXT"]
        context = ssl.create_default_context(cafile=str(self.trust_file))
        if identity is not None:
            context.load_cert_chain(self.write("client", identity))
        with (
            socket.create_connection((address.host, address.port), timeout=10) as connection,
            context.wrap_socket(connection, server_hostname="localhost") as channel,
        ):
            # ApiVersions 0; in TLS 1.3 the alert follows the handshake.
            channel.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff".replace(" ", "")))
            assert channel.recv(1)


def security_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.message.partition(" client=")[0]
        for record in caplog.records
        if record.name == "lograft.security"
    ]


def test_principals_come_from_certificates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="lograft.security")
    nodes = Nodes(tmp_path, ssl__principal__mapping__rules="RULE:^CN=(.*)$/$1/U,DEFAULT")
    alice = nodes.settings_of("alice", nodes.authority.issue("alice"))
    quota = ClientQuotaRecord(
        entity=[EntityData(entity_type="user", entity_name="ALICE")],
        key="producer_byte_rate",
        value=1.0,
    )

    async def store_quota(node: Node) -> None:
        controller = node.shared.local_controller
        assert controller is not None
        await controller.submit(lambda _: ControllerResult((quota,), None))

    with nodes.cluster as cluster:
        cluster.create_topic("t")
        alice["bootstrap.servers"] = cluster.bootstrap_servers
        with Producer(alice) as producer:
            for _ in range(5):
                producer.send("t", "1")
            fast = cluster.call(1, lambda node: node._routers["PLAINTEXT"].fast_paths)
            assert fast is not None
            assert fast.produce.served > 0
            cluster.call(1, store_quota)
            producer.send("t", bytes(100))
        # The fast path and the general path see the same principal.
        assert cluster.call(1, lambda node: node.shared.quotas.produce.throttled) == 1
    logins = {line for line in security_lines(caplog) if "ALICE" in line}
    assert logins == {
        "event=login outcome=success principal=User:ALICE mechanism=TLS listener=PLAINTEXT"
    }


def test_certificates_are_rejected_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="lograft.security")
    nodes = Nodes(
        tmp_path,
        ssl__principal__mapping__rules="RULE:^CN=(localhost|good|revoked)$/$1/",
        **{CRL_SETTING.replace(".", "__"): str(nodes_file(tmp_path))},
    )
    authority = nodes.authority
    revoked, good = authority.issue("revoked"), authority.issue("good")
    nodes.crl_file.write_bytes(authority.revoke(revoked))
    cases = {
        "certificate revoked": revoked,
        "certificate has expired": authority.issue("good", is_expired=True),
        "no rule of ssl.principal.mapping.rules applies": authority.issue("misnamed"),
        "unable to get local issuer certificate": Authority("other").issue("good"),
        "the client sent no certificate": None,
    }
    with nodes.cluster:
        for reason, identity in cases.items():
            caplog.clear()
            with pytest.raises((OSError, AssertionError)):
                nodes.connect(identity)
            # The client may see the end before the node has written the line.
            nodes.connect(good)
            failures = [line for line in security_lines(caplog) if "failure" in line]
            assert len(failures) == 1
            assert f'outcome=failure reason="{reason}"' in failures[0]


def nodes_file(folder: Path) -> Path:
    return folder / "revoked.crl"


def test_revocation_lists_are_read_again(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, **{CRL_SETTING.replace(".", "__"): str(nodes_file(tmp_path))})
    nodes.crl_file.write_bytes(nodes.authority.revoke())
    client = nodes.authority.issue("client")
    with nodes.cluster as cluster:
        settings = nodes.settings_of("admin", nodes.authority.issue("admin"))
        nodes.connect(client)
        with Admin({**settings, "bootstrap.servers": cluster.bootstrap_servers}) as admin:

            def reload() -> None:
                change = ConfigChange(CRL_SETTING, str(nodes.crl_file))
                admin.alter_configs({broker_resource(1): [change]})

            nodes.crl_file.write_text(pem_block("X509 CRL", nodes.authority.revoke(client)))
            reload()
            with pytest.raises(OSError, match=r"revoked|closed|reset|EOF"):
                nodes.connect(client)
            # Files that would lock out everybody are rejected, and the last list stays.
            nodes.crl_file.write_bytes(nodes.authority.revoke(is_outdated=True))
            with pytest.raises(BrokerError, match="CRL has expired"):
                reload()
            nodes.crl_file.write_bytes(b"nonsense")
            with pytest.raises(BrokerError, match="contains no certificate revocation list"):
                reload()
            nodes.connect(nodes.authority.issue("another"))


def test_a_client_without_a_certificate_is_anonymous(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="lograft.security")
    nodes = Nodes(tmp_path, ssl__client__auth="requested")
    with nodes.cluster as cluster:
        caplog.clear()
        nodes.connect(None)
        assert security_lines(caplog) == []
        with Admin(
            {**nodes.settings_of("", None), "bootstrap.servers": cluster.bootstrap_servers}
        ) as admin:
            assert admin.list_topics() == []
        with pytest.raises(OSError, match=r"expired|closed|reset|EOF"):
            nodes.connect(nodes.authority.issue(is_expired=True))


def test_invalid_rules_and_lists_stop_the_start(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, ssl__principal__mapping__rules="RULE:(/x/")
    with pytest.raises(NodeFailed) as found, nodes.cluster:
        pass
    assert "ssl.principal.mapping.rules: the pattern" in repr(found.value.__cause__)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_revocation_lists(str(tmp_path / "nowhere"), where="")
    with pytest.raises(InvalidConfig, match="not a regular file"):
        read_revocation_lists(str(tmp_path), where="")
    # Only lists: OpenSSL would trust a certificate in the file.
    authority = Authority()
    mixed = tmp_path / "mixed.pem"
    crl = pem_block("X509 CRL", authority.revoke())
    mixed.write_text(authority.pem + crl)
    assert read_revocation_lists(str(mixed), where="") == crl
