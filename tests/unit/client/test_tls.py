"""A client's `ssl.*` settings: what cannot be used is named."""

from pathlib import Path

import pytest

from lograft.client.client_settings import ClientSettings
from lograft.client.tls import tls_context
from lograft.model.errors import InvalidConfig
from tests.unit.net.certificates import make_certificate
from tests.unit.net.test_pem_files import JKS, PKCS12

SERVERS = {"bootstrap.servers": "h:1", "security.protocol": "SSL"}


@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize(("content", "words"), [(JKS, "JKS"), (PKCS12, "PKCS #12")])
def test_java_stores_are_refused_with_the_command_that_converts_them(
    tmp_path: Path, store: str, content: bytes, words: str
) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    settings = ClientSettings.read({**SERVERS, f"ssl.{store}.location": str(path)})
    with pytest.raises(InvalidConfig) as refused:
        tls_context(settings)
    text = str(refused.value)
    assert text.startswith(f"ssl.{store}.location: {path} is a")
    assert words in text
    assert "must be a PEM file" in text


def test_pem_files_are_read(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(Path(key).read_text() + Path(certificate).read_text())
    locations = {"ssl.keystore.location": str(both), "ssl.truststore.location": certificate}
    context = tls_context(ClientSettings.read({**SERVERS, **locations}))
    assert context.cert_store_stats()["x509"] == 1
