"""Reads stores from PEM text, PEM files and PKCS #12 files; other formats are rejected by name,
with the command that converts them."""

import os
import ssl
from pathlib import Path
from typing import Final

import pytest

from lograft.model.errors import InvalidConfig
from lograft.net.tls_stores import (
    KeyStore,
    Store,
    StoreSettings,
    TrustStore,
    read_key_store,
    read_trust_store,
)
from tests.unit.net.certificates import Authority, Identity, make_certificate

#: Created by keytool, see make_stores.sh in that directory.
KEYTOOL: Final = Path(__file__).parents[2] / "golden" / "tls"
#: The first bytes of files that keytool created.
JKS: Final = bytes.fromhex("feedfeed 00000002 00000001 00000001")
JCEKS: Final = bytes.fromhex("cececece 00000002 00000001 00000001")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def node(authority: Authority) -> Identity:
    return authority.issue()


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_pem())


def key_store(**given: str) -> KeyStore:
    found = read_key_store(StoreSettings(store="keystore", **given))
    assert found is not None
    return found


def trust_store(**given: str) -> TrustStore:
    found = read_trust_store(StoreSettings(store="truststore", **given))
    assert found is not None
    return found


def read(store: Store, **given: str) -> KeyStore | TrustStore | None:
    settings = StoreSettings(store=store, **given)
    return read_key_store(settings) if store == "keystore" else read_trust_store(settings)


def test_settings_without_a_store() -> None:
    assert read("keystore") is None
    assert read("truststore") is None


def test_pem_file_with_text_around_its_blocks(
    tmp_path: Path, authority: Authority, node: Identity
) -> None:
    path = tmp_path / "store.pem"
    path.write_bytes("Schlüssel\n".encode("latin-1") + (node.pem() + authority.pem).encode())
    found = key_store(location=str(path))
    assert found.chain == (der(node), der(authority.identity))
    assert found.key == node.key_pem()
    assert trust_store(location=str(path)).certificates == found.chain


def test_pem_text_without_line_breaks(authority: Authority, node: Identity) -> None:
    """Continued lines of a properties file lose their line breaks."""
    key, certificate = (" ".join(text.split("\n")) for text in (node.key_pem(), node.pem()))
    found = key_store(type="PEM", key=key, certificates=certificate)
    assert found.chain == (der(node),)
    assert found.key == node.key_pem()
    pem = "".join(authority.pem.split("\n"))
    assert trust_store(type="pem", certificates=pem).certificates == (der(authority.identity),)


def test_encrypted_key_stays_encrypted(node: Identity) -> None:
    found = key_store(
        type="PEM",
        key=node.key_pem("geheim"),
        certificates=node.certificate_pem(),
        key_password="geheim",
    )
    assert found.key.startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert found.key_password == "geheim"


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM"])
def test_stores_created_by_keytool(kind: str) -> None:
    """Java writes PKCS #12 even for the type JKS: the content determines the format."""
    location = str(KEYTOOL / "keystore.p12")
    found = key_store(type=kind, location=location, password="changeit")
    location = str(KEYTOOL / "truststore.p12")
    trusted = trust_store(type=kind, location=location, password="changeit")
    assert len(found.chain) == 2
    assert trusted.certificates == (found.chain[1],)
    assert found.key.startswith("-----BEGIN PRIVATE KEY-----\n")


def test_chain_of_a_pkcs12_store_is_ordered(tmp_path: Path) -> None:
    root, stranger = Authority("root"), Authority("stranger")
    middle = Authority("middle")
    signed = root.issue("middle", ())
    middle.identity = Identity(signed.key, signed.certificate)
    leaf = middle.issue()
    path = tmp_path / "store.p12"
    path.write_bytes(leaf.pkcs12("secret", root.identity, stranger.identity, middle.identity))
    found = key_store(location=str(path), password="secret")
    assert found.chain == tuple(map(der, (leaf, middle.identity, root.identity)))


@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize("password", ["wrong", ""])
def test_wrong_password_of_a_pkcs12_store_is_rejected(store: Store, password: str) -> None:
    location = str(KEYTOOL / f"{store}.p12")
    with pytest.raises(InvalidConfig) as rejected:
        read(store, where="listener X: ", location=location, password=password)
    assert str(rejected.value) == (
        f"listener X: ssl.{store}.location: {location} cannot be opened: ssl.{store}.password is"
        " wrong, or the file is damaged"
    )


def test_pkcs12_store_needs_a_password() -> None:
    with pytest.raises(InvalidConfig, match=r"so ssl\.keystore\.password must be set"):
        read("keystore", location=str(KEYTOOL / "keystore.p12"))
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.password is missing"):
        read("truststore", location=str(KEYTOOL / "truststore.p12"))


def test_pkcs12_store_has_a_single_password() -> None:
    given = {"location": str(KEYTOOL / "keystore.p12"), "password": "changeit"}
    assert read("keystore", **given, key_password="changeit")
    with pytest.raises(InvalidConfig, match=r"set ssl\.key\.password to the same value"):
        read("keystore", **given, key_password="other")


def test_key_store_is_not_a_trust_store_and_vice_versa() -> None:
    """Java's mark of trusted certificates is not available."""
    with pytest.raises(InvalidConfig, match="contains a private key, so it is a key store"):
        read("truststore", location=str(KEYTOOL / "keystore.p12"), password="changeit")
    with pytest.raises(InvalidConfig, match="contains no private key with its certificate"):
        read("keystore", location=str(KEYTOOL / "truststore.p12"), password="changeit")


@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize(
    ("content", "store_type", "kind", "name", "target"),
    [
        (JKS, "JKS", "JKS", "my.jks", "my.p12"),
        (JCEKS, "JKS", "JCEKS", "my.p12", "my.pkcs12"),
        (JCEKS, "jceks", "JCEKS", "my.jceks", "my.p12"),
        ((KEYTOOL / "keystore.jks").read_bytes(), "JKS", "JKS", "keystore", "keystore.p12"),
    ],
)
def test_old_java_stores_are_rejected_with_a_conversion_command(
    tmp_path: Path,
    store: Store,
    content: bytes,
    store_type: str,
    kind: str,
    name: str,
    target: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidConfig) as rejected:
        read(store, type=store_type, location=str(path), password="changeit")
    assert str(rejected.value) == (
        f"ssl.{store}.location: {path} is a Java key store ({kind}), which only Java reads: convert"
        f" it with `keytool -importkeystore -srckeystore {path} -srcstoretype {kind}"
        f" -destkeystore {tmp_path / target} -deststoretype PKCS12` and set"
        f" ssl.{store}.location={tmp_path / target}"
    )


@pytest.mark.parametrize("content", [b"", b"0", b"certificate", bytes.fromhex("3003020101")])
def test_unknown_formats_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match="store is neither a PEM file nor a PKCS #12 store"):
        read("truststore", location=str(path))


def test_der_certificate_is_rejected_with_a_conversion_command(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    path = tmp_path / "my cert.der"
    path.write_bytes(ssl.PEM_cert_to_DER_cert(Path(certificate).read_text()))
    with pytest.raises(InvalidConfig, match=r"openssl x509 -inform DER -in '.*my cert\.der'"):
        read("truststore", location=str(path))


def test_damaged_pkcs12_store_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "store.p12"
    path.write_bytes((KEYTOOL / "keystore.p12").read_bytes()[:-100])
    with pytest.raises(InvalidConfig, match="or the file is damaged"):
        read("keystore", location=str(path), password="changeit")


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nowhere cannot be read: No such file or directory"):
        read("keystore", location=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidConfig, match="cannot be read: embedded null byte"):
        read("keystore", location="a\0b")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(InvalidConfig, match="is not a regular file"):
            read("keystore", location=str(tmp_path / name))


@pytest.mark.parametrize(
    ("store", "given", "reason"),
    [
        ("keystore", {"type": "BCFKS"}, "ssl.keystore.type is BCFKS, but must be one of PEM, PK"),
        ("keystore", {"password": "x"}, "ssl.keystore.password is set, but ssl.keystore.location"),
        ("truststore", {"password": "x"}, "ssl.truststore.password is set, but ssl.truststore.loc"),
        ("keystore", {"key": "x", "certificates": "y"}, "ssl.keystore.type is JKS: set ssl.key"),
        ("truststore", {"certificates": "y"}, "ssl.truststore.type is JKS: set ssl.truststore.ty"),
        ("keystore", {"type": "PEM", "key": "x"}, "but ssl.keystore.certificate.chain is not"),
        ("keystore", {"type": "PEM", "certificates": "x"}, "is set, but ssl.keystore.key is not"),
        (
            "keystore",
            {"type": "PEM", "key": "x", "certificates": "y", "location": "/z"},
            "ssl.keystore.location and ssl.keystore.key are both set",
        ),
        (
            "truststore",
            {"type": "PEM", "certificates": "y", "location": "/z"},
            "ssl.truststore.location and ssl.truststore.certificates are both set",
        ),
        (
            "keystore",
            {"type": "PEM", "key": "x", "certificates": "y", "password": "z"},
            "PEM text has no store password; set ssl.key.password instead",
        ),
        ("keystore", {"type": "PEM", "key": "x", "certificates": "y"}, "contains no private key"),
        ("truststore", {"type": "PEM", "certificates": "y"}, "contains no certificate"),
        (
            "truststore",
            {
                "type": "PEM",
                "certificates": "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----",
            },
            "ssl.truststore.certificates contains a PEM block with invalid base64",
        ),
    ],
)
def test_contradicting_settings_are_rejected(
    store: Store, given: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidConfig) as rejected:
        read(store, where="listener X: ", **given)
    assert str(rejected.value).startswith("listener X: ssl.")
    assert reason in str(rejected.value)


def test_pem_files_have_no_store_password(tmp_path: Path, node: Identity) -> None:
    path = tmp_path / "store.pem"
    path.write_text(node.pem())
    with pytest.raises(InvalidConfig, match=r"set ssl\.key\.password to the password of its priv"):
        read("keystore", location=str(path), password="x")
    with pytest.raises(InvalidConfig, match=r"remove ssl\.truststore\.password"):
        read("truststore", location=str(path), password="x")


def test_secrets_are_not_printed(node: Identity) -> None:
    settings = StoreSettings(
        store="keystore", type="PEM", key=node.key_pem(), certificates=node.certificate_pem()
    )
    assert "KEY" not in f"{settings} {read_key_store(settings)}"
