"""A client's `ssl.*` settings. Clients and nodes read stores with the same code."""

import ssl
from pathlib import Path

import pytest

from lograft.client.client_settings import ClientSettings
from lograft.client.tls import tls_context
from lograft.model.errors import InvalidConfig
from tests.unit.net.certificates import make_certificate
from tests.unit.net.handshakes import negotiate
from tests.unit.net.test_tls_stores import JKS, KEYTOOL

SERVERS = {"bootstrap.servers": "h:1", "security.protocol": "SSL"}


def context_of(settings: dict[str, str]) -> ssl.SSLContext:
    return tls_context(ClientSettings.read({**SERVERS, **settings}))


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_old_java_stores_are_rejected(tmp_path: Path, store: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(JKS)
    with pytest.raises(InvalidConfig) as rejected:
        context_of({f"ssl.{store}.location": str(path), f"ssl.{store}.password": "changeit"})
    assert str(rejected.value).startswith(f"ssl.{store}.location: {path} is a Java key store (JKS)")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A key store and trust store in one file: key and certificate."""
    folder = tmp_path_factory.mktemp("stores")
    certificate, key = make_certificate(folder)
    both = folder / "both.pem"
    both.write_text(Path(key).read_text() + Path(certificate).read_text())
    return str(both)


def stores(pem: str) -> dict[str, dict[str, str]]:
    text = Path(pem).read_text()
    return {
        "files": {"ssl.keystore.location": pem, "ssl.truststore.location": pem},
        "text": {
            "ssl.keystore.key": text,
            "ssl.keystore.certificate.chain": text,
            "ssl.truststore.certificates": text,
        },
        "pkcs12": {
            "ssl.keystore.location": str(KEYTOOL / "keystore.p12"),
            "ssl.keystore.password": "changeit",
            "ssl.truststore.location": str(KEYTOOL / "truststore.p12"),
            "ssl.truststore.password": "changeit",
            "ssl.keystore.type": "JKS",
            "ssl.truststore.type": "PKCS12",
        },
    }


@pytest.mark.parametrize("kind", ["files", "text", "pkcs12"])
def test_client_and_server_authenticate_each_other(pem: str, kind: str) -> None:
    client = context_of(stores(pem)[kind])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if kind == "pkcs12":
        from lograft.net.tls_contexts import TlsParameters, server_context
        from lograft.net.tls_stores import StoreSettings, read_key_store, read_trust_store

        keys, trusted = (str(KEYTOOL / f"{each}store.p12") for each in ("key", "trust"))
        server = server_context(
            TlsParameters(
                key_store=read_key_store(
                    StoreSettings(store="keystore", location=keys, password="changeit")
                ),
                trust_store=read_trust_store(
                    StoreSettings(store="truststore", location=trusted, password="changeit")
                ),
            )
        )
    else:
        server.load_cert_chain(pem)
        server.load_verify_locations(pem)
    server.verify_mode = ssl.CERT_REQUIRED
    assert negotiate(server, client).version == "TLSv1.3"
    assert client.check_hostname


def test_versions_and_suites_are_restricted(pem: str) -> None:
    trusted = {"ssl.truststore.location": pem}
    assert context_of(trusted).minimum_version is ssl.TLSVersion.TLSv1_2
    newest = context_of({**trusted, "ssl.enabled.protocols": "TLSv1.3"})
    assert newest.minimum_version is ssl.TLSVersion.TLSv1_3
    older = context_of({**trusted, "ssl.protocol": "TLSv1.2"})
    assert older.maximum_version is ssl.TLSVersion.TLSv1_2
    suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    chosen = context_of({**trusted, "ssl.cipher.suites": suite})
    assert chosen.maximum_version is ssl.TLSVersion.TLSv1_2
    assert "ECDHE-RSA-AES256-GCM-SHA384" in {each["name"] for each in chosen.get_ciphers()}
    with pytest.raises(InvalidConfig, match=r"ssl\.enabled\.protocols has TLSv1\.1"):
        context_of({**trusted, "ssl.enabled.protocols": "TLSv1.1"})
