"""SSL contexts built from stores, and the files through which OpenSSL gets private keys."""

import os
import ssl
import stat
from pathlib import Path

import pytest

from lograft.model.errors import InvalidConfig
from lograft.net.tls_contexts import TlsParameters, client_context, private_file, server_context
from lograft.net.tls_stores import KeyStore, TrustStore
from tests.unit.net.certificates import Authority, Identity
from tests.unit.net.handshakes import negotiate


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_pem())


def key_store(
    identity: Identity, password: str | None = None, given: str | None = None
) -> KeyStore:
    key = identity.key_pem(password)
    return KeyStore(chain=(der(identity),), key=key, key_password=given, source="node.pem")


def trusting(*identities: Identity) -> TrustStore:
    return TrustStore(certificates=tuple(map(der, identities)))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize("client_auth", ["required", "requested"])
def test_both_sides_have_certificates(authority: Authority, client_auth: str) -> None:
    trust_store = trusting(authority.identity)
    server = TlsParameters(
        key_store=key_store(authority.issue()), trust_store=trust_store, client_auth=client_auth
    )
    client = TlsParameters(key_store=key_store(authority.issue("me", ())), trust_store=trust_store)
    assert negotiate(server_context(server), client_context(client)).version == "TLSv1.3"


def test_single_certificate_can_be_trusted(authority: Authority) -> None:
    """Java trusts every certificate of a trust store, not only those of authorities."""
    node = authority.issue()
    server = TlsParameters(key_store=key_store(node))
    client = TlsParameters(trust_store=trusting(node))
    assert negotiate(server_context(server), client_context(client))
    stranger = TlsParameters(trust_store=trusting(authority.issue()))
    with pytest.raises(ssl.SSLCertVerificationError):
        negotiate(server_context(server), client_context(stranger))


@pytest.mark.parametrize(
    ("algorithm", "compares"), [("https", True), ("HTTPS", True), (" ", False)]
)
def test_host_names_are_verified(authority: Authority, algorithm: str, compares: bool) -> None:
    server = TlsParameters(key_store=key_store(authority.issue("other", ["other"])))
    client = client_context(
        TlsParameters(trust_store=trusting(authority.identity), endpoint_identification=algorithm)
    )
    assert client.check_hostname is compares
    if compares:
        with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
            negotiate(server_context(server), client)
    else:
        assert negotiate(server_context(server), client)


def test_other_identification_algorithms_are_rejected() -> None:
    with pytest.raises(InvalidConfig, match=r"identification\.algorithm is LDAPS, but must be ht"):
        client_context(TlsParameters(endpoint_identification="LDAPS"))


def test_encrypted_key_needs_its_password(authority: Authority) -> None:
    node = authority.issue()
    server_context(TlsParameters(key_store=key_store(node, "geheim", "geheim")))
    for given, state in ((None, "missing"), ("falsch", "wrong"), ("x" * 2000, "wrong")):
        with pytest.raises(InvalidConfig) as rejected:
            server_context(TlsParameters(key_store=key_store(node, "geheim", given)))
        assert str(rejected.value).startswith(
            f"node.pem cannot be used: the private key is encrypted and ssl.key.password is {state}"
        )
        assert "falsch" not in str(rejected.value)


def test_password_for_an_unencrypted_key_is_rejected(authority: Authority) -> None:
    with pytest.raises(InvalidConfig, match=r"is not encrypted: remove ssl\.key\.password"):
        server_context(TlsParameters(key_store=key_store(authority.issue(), None, "x")))


def test_key_of_another_certificate_is_rejected(authority: Authority) -> None:
    mixed = KeyStore(chain=(der(authority.issue()),), key=authority.issue().key_pem(), source="x")
    with pytest.raises(InvalidConfig, match="x cannot be used: the private key does not belong"):
        server_context(TlsParameters(key_store=mixed))


def test_listener_needs_its_stores(authority: Authority) -> None:
    with pytest.raises(InvalidConfig, match="a TLS listener needs a private key and a certificat"):
        server_context(TlsParameters())
    with pytest.raises(InvalidConfig, match=r"ssl\.client\.auth=required needs the certificates"):
        server_context(
            TlsParameters(key_store=key_store(authority.issue()), client_auth="required")
        )


def test_invalid_certificates_are_rejected() -> None:
    with pytest.raises(InvalidConfig, match="t cannot be used"):
        client_context(TlsParameters(trust_store=TrustStore(certificates=(b"0\0",), source="t")))


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_private_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memory_files: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    before = len(os.listdir("/proc/self/fd"))
    with private_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        if has_memory_files and hasattr(os, "memfd_create"):
            assert list(tmp_path.iterdir()) == []
        else:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(ZeroDivisionError), private_file(b"secret") as path:
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before
