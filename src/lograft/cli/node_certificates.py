"""The certificates of a node of `lograft start --secure`: a certificate authority of its own, and a
server certificate that it signs.

The authority is renewed with the same key and name, so that clients that trust its former
certificate also accept server certificates that were issued later.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lograft.model.errors import InvalidInput
from lograft.model.seams import Clock

AUTHORITY: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca.key"
#: The private key of the node and its certificate.
NODE: Final = "node.pem"
SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644

_AUTHORITY_LIFETIME: Final = timedelta(days=3650)
#: Some clients reject server certificates that are valid for more than 398 days.
_NODE_LIFETIME: Final = timedelta(days=397)
_AUTHORITY_RENEWAL: Final = timedelta(days=800)
_NODE_RENEWAL: Final = timedelta(days=130)
#: Clocks of clients may be behind.
_BACKDATED: Final = timedelta(days=1)


class NodeCertificates:
    """The files of one node in a folder; `renew` creates what is missing or expires soon."""

    def __init__(self, folder: Path, hosts: Sequence[str], clock: Clock) -> None:
        """`hosts` are the names and IP addresses for which the server certificate is valid."""
        self._folder = folder
        self._hosts = tuple(hosts)
        self._clock = clock

    def renew(self) -> bool:
        """Returns whether the server certificate was replaced. Raises InvalidInput if a file is
        unusable, or is missing but required. Blocks."""
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        authority = self._read_certificate(AUTHORITY)
        if authority is None and (self._folder / NODE).exists():
            raise InvalidInput(
                f"{self._folder / AUTHORITY} is missing: restore it, since clients trust it; or"
                f" remove {NODE} and {AUTHORITY_KEY} for a new certificate authority"
            )
        if authority is None or authority.not_valid_after_utc - now < _AUTHORITY_RENEWAL:
            authority = self._renew_authority(authority, now)
        node = self._read_certificate(NODE)
        if node is not None and self._is_usable(node, authority, now):
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        issuer_key = self._read_authority_key()
        certificate = _sign_node(self._hosts, key, authority, issuer_key, now)
        self._write(NODE, _key_pem(key) + certificate.public_bytes(Encoding.PEM), SECRET_MODE)
        return True

    def _renew_authority(self, old: x509.Certificate | None, now: datetime) -> x509.Certificate:
        if old is None and not (self._folder / AUTHORITY_KEY).exists():
            key = ec.generate_private_key(ec.SECP256R1())
            self._write(AUTHORITY_KEY, _key_pem(key), SECRET_MODE)
        key = self._read_authority_key()
        certificate = _sign_authority(_new_name() if old is None else old.subject, key, now)
        self._write(AUTHORITY, certificate.public_bytes(Encoding.PEM), PUBLIC_MODE)
        return certificate

    def _is_usable(
        self, node: x509.Certificate, authority: x509.Certificate, now: datetime
    ) -> bool:
        try:
            node.verify_directly_issued_by(authority)
        except Exception:
            return False
        return (
            node.not_valid_after_utc - now >= _NODE_RENEWAL
            and node.not_valid_before_utc <= now
            and _names_of(node) >= {_general_name(host) for host in self._hosts}
        )

    def _read_certificate(self, name: str) -> x509.Certificate | None:
        data = self._read(name)
        if data is None:
            return None
        try:
            return x509.load_pem_x509_certificate(data)
        except ValueError:
            raise self._invalid(name) from None

    def _read_authority_key(self) -> ec.EllipticCurvePrivateKey:
        data = self._read(AUTHORITY_KEY)
        if data is None:
            raise InvalidInput(
                f"{self._folder / AUTHORITY_KEY} is missing, but a new certificate is needed:"
                " restore it for this start"
            )
        try:
            key = load_pem_private_key(data, None)
        except (ValueError, TypeError):
            raise self._invalid(AUTHORITY_KEY) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise self._invalid(AUTHORITY_KEY)
        return key

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes, mode: int) -> None:
        write_file(self._folder / name, data, mode=mode)

    def _invalid(self, name: str) -> InvalidInput:
        return InvalidInput(f"{self._folder / name} is damaged: restore it from a backup")


def write_file(path: Path, data: bytes, *, mode: int) -> None:
    """Replaces the file atomically and durably. It never has permissions other than `mode`."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _new_name() -> x509.Name:
    # A name of its own, so that a trust store may contain the authorities of several nodes.
    return _name(f"Lograft {os.urandom(4).hex()}")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _sign_authority(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.Certificate:
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    return (
        _builder(name, key, name, now, _AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _sign_node(
    hosts: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    names = [_general_name(host) for host in hosts]
    return (
        _builder(_name("lograft"), key, authority.subject, now, _NODE_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    public_key = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _names_of(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return set()
    return set(extension.value)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
