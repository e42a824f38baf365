"""Files that are no PEM are named by what they are, with the command that makes PEM of them."""

import ssl
from pathlib import Path
from typing import Final

import pytest

from lograft.model.errors import InvalidConfig
from lograft.net.pem_files import Store, check_pem_file
from tests.unit.net.certificates import make_certificate

#: How files begin that `keytool` has made.
JKS: Final = bytes.fromhex("feedfeed 00000002 00000001 00000001")
PKCS12: Final = bytes.fromhex("308209ea 020103 30820994 06092a8648")


@pytest.mark.parametrize(
    ("content", "store", "words", "command"),
    [
        (
            JKS,
            "keystore",
            "a Java key store (JKS)",
            "keytool -importkeystore -srckeystore {0} -destkeystore {1}.p12 -deststoretype PKCS12"
            " && openssl pkcs12 -in {1}.p12 -nodes -out {1}.pem",
        ),
        (
            JKS,
            "truststore",
            "a Java key store (JKS)",
            "keytool -list -rfc -keystore {0} > {1}.pem",
        ),
        (
            PKCS12,
            "keystore",
            "a PKCS #12 store",
            "openssl pkcs12 -in {0} -nodes -out {1}.pem",
        ),
        (
            bytes.fromhex("3080 020103 30800609"),  # of a length that its end tells
            "truststore",
            "a PKCS #12 store",
            "openssl pkcs12 -in {0} -nokeys -out {1}.pem",
        ),
        (b"", "truststore", "something else", None),
        (b"0", "truststore", "something else", None),
        (b"certificate", "truststore", "something else", None),
    ],
)
def test_what_a_file_is(
    tmp_path: Path, content: bytes, store: Store, words: str, command: str | None
) -> None:
    path = tmp_path / "my.store"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig) as refused:
        check_pem_file("ssl.x.location", str(path), store)
    expected = f"ssl.x.location: {path} is {words}, but must be a PEM file"
    if command is not None:
        made = command.format(path, path.with_suffix(""))
        expected += f"; `{made}` makes one of it"
    assert str(refused.value) == expected


def test_a_certificate_in_der_and_one_in_pem(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    check_pem_file("ssl.x.location", certificate, "truststore")
    path = tmp_path / "my cert.der"
    path.write_bytes(ssl.PEM_cert_to_DER_cert(Path(certificate).read_text()))
    with pytest.raises(InvalidConfig, match=r"openssl x509 -inform DER -in '.*my cert\.der'"):
        check_pem_file("ssl.x.location", str(path), "truststore")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nowhere cannot be read: No such file or directory"):
        check_pem_file("ssl.x.location", str(tmp_path / "nowhere"), "keystore")
