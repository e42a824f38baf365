"""Certificates of `lograft start --secure`: created, kept, renewed, and verified by OpenSSL."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from lograft.cli.node_certificates import AUTHORITY, AUTHORITY_KEY, NODE, NodeCertificates
from lograft.model.errors import InvalidInput
from tests.support.clocks import FakeClock

HOSTS = ("localhost", "127.0.0.1", "node1.example")
DAY_MS = 24 * 3600 * 1000
START = datetime(2030, 1, 1, tzinfo=UTC)


def clock_at(days: float) -> FakeClock:
    return FakeClock(int(START.timestamp() * 1000 + days * DAY_MS))


def renew(folder: Path, days: float = 0, hosts: tuple[str, ...] = HOSTS) -> bool:
    return NodeCertificates(folder, hosts, clock_at(days)).renew()


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / name).read_bytes())


def verify(authority: x509.Certificate, node: x509.Certificate, host: str, days: float) -> None:
    """Raises VerificationError as a client would that checks the rules of the web."""
    verifier = (
        PolicyBuilder()
        .store(Store([authority]))
        .time(START + timedelta(days=days))
        .build_server_verifier(x509.DNSName(host))
    )
    verifier.verify(node, [])


def test_clients_that_trust_the_authority_accept_the_node(tmp_path: Path) -> None:
    assert renew(tmp_path)
    for host in ("localhost", "node1.example"):
        verify(certificate(tmp_path, AUTHORITY), certificate(tmp_path, NODE), host, 0)
    # The private key belongs to the certificate.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / NODE)


def test_keys_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    renew(tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {AUTHORITY: 0o644, AUTHORITY_KEY: 0o600, NODE: 0o600}


def test_certificates_are_kept_until_they_expire_soon(tmp_path: Path) -> None:
    renew(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert not renew(tmp_path, 260)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert renew(tmp_path, 270)
    assert (tmp_path / AUTHORITY).read_bytes() == before[tmp_path / AUTHORITY]
    verify(certificate(tmp_path, AUTHORITY), certificate(tmp_path, NODE), "localhost", 600)


def test_a_renewed_authority_is_trusted_by_clients_with_the_former_one(tmp_path: Path) -> None:
    renew(tmp_path)
    former = certificate(tmp_path, AUTHORITY)
    assert renew(tmp_path, 2900)
    current, node = certificate(tmp_path, AUTHORITY), certificate(tmp_path, NODE)
    assert current.not_valid_after_utc > former.not_valid_after_utc
    verify(former, node, "localhost", 2900)
    verify(current, node, "localhost", 2900)


def test_a_new_name_needs_a_new_certificate(tmp_path: Path) -> None:
    renew(tmp_path)
    assert not renew(tmp_path, hosts=HOSTS[:2])
    assert renew(tmp_path, hosts=(*HOSTS, "node2.example", "fd00::1"))
    verify(certificate(tmp_path, AUTHORITY), certificate(tmp_path, NODE), "node2.example", 0)


def test_a_certificate_of_another_authority_is_replaced(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        renew(folder)
    (folders[0] / NODE).write_bytes((folders[1] / NODE).read_bytes())
    assert renew(folders[0])
    verify(certificate(folders[0], AUTHORITY), certificate(folders[0], NODE), "localhost", 0)


def test_the_key_of_the_authority_is_needed_for_new_certificates_only(tmp_path: Path) -> None:
    renew(tmp_path)
    (tmp_path / AUTHORITY_KEY).unlink()
    assert not renew(tmp_path, 100)
    with pytest.raises(InvalidInput, match=r"ca\.key is missing, but a new certificate is needed"):
        renew(tmp_path, 300)


def test_a_lost_authority_is_not_replaced_silently(tmp_path: Path) -> None:
    renew(tmp_path)
    (tmp_path / AUTHORITY).unlink()
    with pytest.raises(InvalidInput, match=r"ca\.pem is missing: restore it"):
        renew(tmp_path)


@pytest.mark.parametrize("name", [AUTHORITY, NODE])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    renew(tmp_path)
    (tmp_path / name).write_text("nothing")
    with pytest.raises(InvalidInput, match=f"{name} is damaged"):
        renew(tmp_path)
