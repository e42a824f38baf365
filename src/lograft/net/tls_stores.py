"""TLS key stores and trust stores: PEM text, PEM files and PKCS #12 files.

The format is detected from the content of the file, not from `ssl.keystore.type`: Java's default
type is JKS, with which it reads and writes PKCS #12. Only a store in Java's old formats is
rejected, with the keytool command that converts it.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from stat import S_ISREG
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from lograft.model.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

#: A key store has a private key and its certificates, a trust store certificates only.
Store = Literal["keystore", "truststore"]
TYPES: Final = ("PEM", "PKCS12", "JKS")
FILE_BYTES_MAX: Final = 16 << 20

_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
_SEQUENCE: Final = 0x30
#: A PKCS #12 file starts with its version, 3; a certificate starts with a sequence.
_PKCS12_VERSION: Final = b"\x02\x01\x03"
#: Line breaks are optional: continued lines of a properties file lose them.
_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATE_LABELS: Final = ("CERTIFICATE", "X509 CERTIFICATE")
_BASE64_LINE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings of one store, of a listener or of a client."""

    store: Store
    #: Start of every error message: the listener, for a node.
    where: str = ""
    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    #: PEM text: `ssl.keystore.certificate.chain` or `ssl.truststore.certificates`.
    certificates: str | None = field(default=None, repr=False)
    #: PEM text of the private key, in a key store only.
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def setting(self) -> str:
        return f"ssl.{self.store}"

    @property
    def source(self) -> str:
        """The location of the store, for messages."""
        return f"{self.setting}.location: {self.location}"

    def reject(self, reason: str) -> NoReturn:
        raise InvalidConfig(f"{self.where}{reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    #: The certificate of the key first, then its issuers; DER.
    chain: tuple[bytes, ...] = field(repr=False)
    #: PEM, encrypted if there is a password.
    key: str = field(repr=False)
    key_password: str | None = field(default=None, repr=False)
    source: str = field(default="", compare=False)

    def to_pem(self) -> str:
        return "".join([self.key, *(pem_block("CERTIFICATE", der) for der in self.chain)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    #: DER.
    certificates: tuple[bytes, ...] = field(repr=False)
    source: str = field(default="", compare=False)


def read_key_store(settings: StoreSettings) -> KeyStore | None:
    """Returns None if the settings have no key store. Raises InvalidConfig."""
    _check_type(settings)
    if settings.key is not None or settings.certificates is not None:
        _check_inline(settings)
        if settings.key is None:
            settings.reject("ssl.keystore.certificate.chain is set, but ssl.keystore.key is not")
        if settings.certificates is None:
            settings.reject("ssl.keystore.key is set, but ssl.keystore.certificate.chain is not")
        text = f"{settings.key}\n{settings.certificates}"
        return _key_store_of_pem(settings, text, "ssl.keystore.key")
    if settings.location is None:
        _check_no_password(settings)
        return None
    content = _read_file(settings)
    if _is_pem(content):
        if settings.password is not None:
            settings.reject(
                f"{settings.source} is a PEM file, which has no ssl.keystore.password: set"
                " ssl.key.password to the password of its private key, if that is encrypted"
            )
        return _key_store_of_pem(settings, _text_of(content), settings.source)
    if settings.password is None:
        settings.reject(
            f"{settings.source} is a PKCS #12 store, so ssl.keystore.password must be set"
        )
    if settings.key_password not in (None, settings.password):
        settings.reject(
            f"{settings.source} is a PKCS #12 store, whose key has the password of the store: set"
            " ssl.key.password to the same value as ssl.keystore.password, or remove it"
        )
    return _key_store_of_pkcs12(settings, _open_pkcs12(settings, content))


def read_trust_store(settings: StoreSettings) -> TrustStore | None:
    """Returns None if the settings have no trust store. Raises InvalidConfig."""
    _check_type(settings)
    if settings.certificates is not None:
        _check_inline(settings)
        return _trust_store_of_pem(
            settings, settings.certificates, source="ssl.truststore.certificates"
        )
    if settings.location is None:
        _check_no_password(settings)
        return None
    content = _read_file(settings)
    if _is_pem(content):
        if settings.password is not None:
            settings.reject(
                f"{settings.source} is a PEM file, which has no password: remove"
                " ssl.truststore.password"
            )
        return _trust_store_of_pem(settings, _text_of(content), settings.source)
    return _trust_store_of_pkcs12(settings, _open_pkcs12(settings, content))


def pem_block(label: str, der: bytes) -> str:
    data = base64.b64encode(der).decode()
    lines = (data[begin : begin + _BASE64_LINE] for begin in range(0, len(data), _BASE64_LINE))
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


# ── settings ─────────────────────────────────────────────────────────────────────────────────


def _check_type(settings: StoreSettings) -> None:
    if settings.type.upper() == "JCEKS" and settings.location is not None:
        _read_file(settings)  # Rejects such a store with the command that converts it.
    if settings.type.upper() not in TYPES:
        settings.reject(
            f"{settings.setting}.type is {settings.type}, but must be one of {', '.join(TYPES)}"
        )


def _check_inline(settings: StoreSettings) -> None:
    """Checks the settings of a store that is given as PEM text."""
    inline = "ssl.keystore.key" if settings.store == "keystore" else "ssl.truststore.certificates"
    if settings.type.upper() != "PEM":
        settings.reject(
            f"{inline} is PEM text, but {settings.setting}.type is {settings.type}: set"
            f" {settings.setting}.type=PEM"
        )
    if settings.location is not None:
        settings.reject(f"{settings.setting}.location and {inline} are both set: remove one")
    if settings.password is not None:
        advice = "; set ssl.key.password instead" if settings.store == "keystore" else ""
        settings.reject(
            f"{settings.setting}.password is set, but PEM text has no store password{advice}"
        )


def _check_no_password(settings: StoreSettings) -> None:
    if settings.password is not None:
        settings.reject(
            f"{settings.setting}.password is set, but {settings.setting}.location is not"
        )


# ── files ────────────────────────────────────────────────────────────────────────────────────


def _read_file(settings: StoreSettings) -> bytes:
    """Returns the content of a PEM or PKCS #12 file; rejects other formats by name."""
    assert settings.location is not None
    path = Path(settings.location)
    try:
        # Reading a pipe or a device could block the loop.
        if not S_ISREG(path.stat().st_mode):
            settings.reject(f"{settings.source} is not a regular file")
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        settings.reject(f"{settings.source} cannot be read: {error.strerror}")
    except ValueError as error:
        settings.reject(f"{settings.source!r} cannot be read: {error}")
    if len(content) > FILE_BYTES_MAX:
        settings.reject(f"{settings.source} is larger than {FILE_BYTES_MAX >> 20} MiB")
    if not _is_pem(content) and not _der_sequence_content(content).startswith(_PKCS12_VERSION):
        settings.reject(_describe_unknown(settings, content))
    return content


def _is_pem(content: bytes) -> bool:
    return b"-----BEGIN " in content


def _text_of(content: bytes) -> str:
    # Text around the blocks may be in any encoding; the blocks themselves are ASCII.
    return content.decode("latin-1")


def _describe_unknown(settings: StoreSettings, content: bytes) -> str:
    """Returns the format of a file that is neither PEM nor PKCS #12, with a command to convert
    it."""
    assert settings.location is not None
    path, source = Path(settings.location), settings.source
    if content.startswith((_JKS, _JCEKS)):
        kind = "JKS" if content.startswith(_JKS) else "JCEKS"
        target = path.with_suffix(".pkcs12" if path.suffix == ".p12" else ".p12")
        return (
            f"{source} is a Java key store ({kind}), which only Java reads: convert it with"
            f" `keytool -importkeystore -srckeystore {quote(str(path))} -srcstoretype {kind}"
            f" -destkeystore {quote(str(target))} -deststoretype PKCS12` and set"
            f" {settings.setting}.location={target}"
        )
    inside = _der_sequence_content(content)
    if inside and inside[0] == _SEQUENCE:
        return (
            f"{source} is in DER, but must be a PEM file or a PKCS #12 store: convert it with"
            f" `openssl x509 -inform DER -in {quote(str(path))}"
            f" -out {quote(str(path.with_suffix('.pem')))}`"
        )
    return f"{source} is neither a PEM file nor a PKCS #12 store"


def _der_sequence_content(content: bytes) -> bytes:
    """Returns the first bytes inside a DER sequence; empty for anything else."""
    if len(content) < 2 or content[0] != _SEQUENCE:
        return b""
    size = content[1]
    begin = 2 + (size & 0x7F if size & 0x80 else 0)
    return content[begin : begin + len(_PKCS12_VERSION)]


# ── PEM ──────────────────────────────────────────────────────────────────────────────────────


def _key_store_of_pem(settings: StoreSettings, text: str, source: str) -> KeyStore:
    keys = []
    for label, body in _PEM_BLOCK.findall(text):
        if label.endswith("PRIVATE KEY"):
            keys.append(_normalized_key(settings, label, body, source))
    if not keys:
        settings.reject(f"{source} contains no private key (-----BEGIN PRIVATE KEY-----)")
    chain = _certificates_of(settings, text, source)
    return KeyStore(chain=chain, key=keys[0], key_password=settings.key_password, source=source)


def _trust_store_of_pem(settings: StoreSettings, text: str, source: str) -> TrustStore:
    return TrustStore(certificates=_certificates_of(settings, text, source), source=source)


def _normalized_key(settings: StoreSettings, label: str, body: str, source: str) -> str:
    if ":" in body:
        # OpenSSL's own encrypted keys have header lines, which need their line breaks.
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    return pem_block(label, _decode(settings, body, source))


def _certificates_of(settings: StoreSettings, text: str, source: str) -> tuple[bytes, ...]:
    certificates = tuple(
        _decode(settings, body, source)
        for label, body in _PEM_BLOCK.findall(text)
        if label in _CERTIFICATE_LABELS
    )
    if not certificates:
        settings.reject(f"{source} contains no certificate (-----BEGIN CERTIFICATE-----)")
    return certificates


def _decode(settings: StoreSettings, body: str, source: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        settings.reject(f"{source} contains a PEM block with invalid base64")


# ── PKCS #12 ─────────────────────────────────────────────────────────────────────────────────


def _open_pkcs12(settings: StoreSettings, content: bytes) -> "PKCS12KeyAndCertificates":
    # Imported here: most nodes and clients have no such store, and the import is slow.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    password = None if settings.password is None else settings.password.encode()
    try:
        return pkcs12.load_pkcs12(content, password)
    except UnsupportedAlgorithm as error:
        settings.reject(f"{settings.source} uses an algorithm that is not supported: {error}")
    except ValueError:
        state = "missing" if password is None else "wrong"
        settings.reject(
            f"{settings.source} cannot be opened: {settings.setting}.password is {state}, or the"
            " file is damaged"
        )


def _key_store_of_pkcs12(settings: StoreSettings, store: "PKCS12KeyAndCertificates") -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        settings.reject(f"{settings.source} contains no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    others = [entry.certificate for entry in store.additional_certs]
    chain = _chain_from(store.cert.certificate, others)
    return KeyStore(chain=_to_der(chain), key=key.decode(), source=settings.source)


def _trust_store_of_pkcs12(
    settings: StoreSettings, store: "PKCS12KeyAndCertificates"
) -> TrustStore:
    if store.key is not None:
        # Java trusts only entries that are marked as trusted, but this mark is not available here:
        # the issuers of the node's own certificate must not become trusted by accident.
        settings.reject(
            f"{settings.source} contains a private key, so it is a key store: export the"
            " certificates to trust into a separate file, with"
            f" `keytool -exportcert -rfc -alias ALIAS -keystore {quote(str(settings.location))}`"
        )
    certificates = [entry.certificate for entry in store.additional_certs]
    if not certificates:
        settings.reject(f"{settings.source} contains no certificate")
    return TrustStore(certificates=_to_der(certificates), source=settings.source)


def _chain_from(leaf: "Certificate", others: Iterable["Certificate"]) -> "list[Certificate]":
    """Returns the leaf and its issuers, in order. The store may contain other certificates."""
    chain, rest = [leaf], list(others)
    while chain[-1].issuer != chain[-1].subject:
        issuer = next(
            (certificate for certificate in rest if certificate.subject == chain[-1].issuer), None
        )
        if issuer is None:
            break
        rest.remove(issuer)
        chain.append(issuer)
    return chain


def _to_der(certificates: "Sequence[Certificate]") -> tuple[bytes, ...]:
    from cryptography.hazmat.primitives.serialization import Encoding

    return tuple(certificate.public_bytes(Encoding.DER) for certificate in certificates)
