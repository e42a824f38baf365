"""Files that are to hold keys and certificates in PEM. Java's stores look like nothing to OpenSSL,
so what they are, and how they become PEM, is said here."""

from pathlib import Path
from shlex import quote
from typing import Final, Literal

from lograft.model.errors import InvalidConfig

#: A key store has a private key and its certificates, a trust store certificates only.
Store = Literal["keystore", "truststore"]
STORES: Final[tuple[Store, ...]] = ("keystore", "truststore")

_JAVA_STORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_SEQUENCE: Final = 0x30
#: A PEM file may have notes before its first part; nobody's are longer.
_BYTES_MAX: Final = 1 << 20
#: The first part of a PKCS #12 file is its version, 3; that of a certificate is a sequence.
_PKCS12_VERSION: Final = b"\x02\x01\x03"


def check_pem_file(setting: str, path: str, store: Store) -> None:
    """Raises InvalidConfig for a file that cannot be read, or is of another kind."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_BYTES_MAX)
    except OSError as error:
        raise InvalidConfig(f"{setting}: {path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " in content:
        return
    kind, command = _kind_of(content, path, store)
    advice = f"; `{command}` makes one of it" if command else ""
    raise InvalidConfig(f"{setting}: {path} is {kind}, but must be a PEM file{advice}")


def _kind_of(content: bytes, path: str, store: Store) -> tuple[str, str | None]:
    """In words, and the command that makes PEM of it."""
    source, pem = quote(path), quote(str(Path(path).with_suffix(".pem")))
    what = "-nodes" if store == "keystore" else "-nokeys"
    if content.startswith(_JAVA_STORES):
        if store == "truststore":
            return "a Java key store (JKS)", f"keytool -list -rfc -keystore {source} > {pem}"
        between = quote(str(Path(path).with_suffix(".p12")))
        return "a Java key store (JKS)", (
            f"keytool -importkeystore -srckeystore {source} -destkeystore {between}"
            f" -deststoretype PKCS12 && openssl pkcs12 -in {between} {what} -out {pem}"
        )
    inside = _inside(content)
    if inside.startswith(_PKCS12_VERSION):
        return "a PKCS #12 store", f"openssl pkcs12 -in {source} {what} -out {pem}"
    if inside and inside[0] == _SEQUENCE:
        return "in DER", f"openssl x509 -inform DER -in {source} -out {pem}"
    return "something else", None


def _inside(content: bytes) -> bytes:
    """How the content of a DER sequence begins; nothing, if it is none."""
    if len(content) < 2 or content[0] != _SEQUENCE:
        return b""
    size = content[1]
    begin = 2 + (size & 0x7F if size & 0x80 else 0)
    return content[begin : begin + len(_PKCS12_VERSION)]
