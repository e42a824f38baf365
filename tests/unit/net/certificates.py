"""Keys and certificates for localhost, generated for a test."""

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        pem = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))
        return pem.decode()

    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.certificate_pem()

    def pkcs12(self, password: str | None, *others: "Identity") -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"node",
            self.key,
            self.certificate,
            [other.certificate for other in others],
            _encryption(password),
        )


class Authority:
    """Signs certificates; its own is self-signed."""

    def __init__(self, name: str = "ca") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self.identity = Identity(key, _sign(name, key, name, key, hosts=(), is_authority=True))

    @property
    def pem(self) -> str:
        return self.identity.certificate_pem()

    def issue(
        self,
        name: str = "localhost",
        hosts: Iterable[str] = ("localhost", "127.0.0.1"),
        *,
        is_expired: bool = False,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.identity.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0]
        signed = _sign(
            name, key, str(issuer.value), self.identity.key, hosts=hosts, is_expired=is_expired
        )
        return Identity(key, signed)

    def revoke(self, *identities: Identity, is_outdated: bool = False) -> bytes:
        """Returns a certificate revocation list in DER."""
        now = datetime.datetime.now(datetime.UTC)
        days = datetime.timedelta(days=-1 if is_outdated else 1)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.identity.certificate.subject)
            .last_update(now - datetime.timedelta(days=2))
            .next_update(now + days)
        )
        for identity in identities:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(identity.certificate.serial_number)
                .revocation_date(now)
                .build()
            )
        return builder.sign(self.identity.key, hashes.SHA256()).public_bytes(Encoding.DER)


def make_certificate(folder: Path) -> tuple[str, str]:
    """Returns the paths of a self-signed certificate and of its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = ("localhost", "127.0.0.1")
    signed = _sign("localhost", key, "localhost", key, hosts=hosts, is_authority=True)
    identity = Identity(key, signed)
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_text(identity.certificate_pem())
    key_file.write_text(identity.key_pem())
    return str(certificate_file), str(key_file)


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    hosts: Iterable[str],
    is_authority: bool = False,
    is_expired: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(minutes=-1 if is_expired else 1440))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    names = [_general_name(host) for host in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())
