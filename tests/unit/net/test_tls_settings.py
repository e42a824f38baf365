"""The `ssl.*` settings of a listener, with or without its prefix."""

import ssl
from pathlib import Path

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.net.tls_settings import tls_parameters
from tests.unit.net.certificates import Authority
from tests.unit.net.test_tls_stores import JKS, KEYTOOL

PREFIX = "listener.name.inside."
PEM_STORES = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}


def config_of(settings: dict[str, str], *, prefix: str = PREFIX) -> BrokerConfig:
    return broker_config(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "INSIDE://localhost:0,OUTSIDE://localhost:0,CONTROLLER://localhost:0",
            "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/data",
            **{prefix + name: value for name, value in settings.items()},
        }
    )


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def test_all_settings_of_a_listener_are_read(authority: Authority) -> None:
    node = authority.issue()
    config = config_of(
        {
            **PEM_STORES,
            "ssl.keystore.key": node.key_pem("geheim"),
            "ssl.keystore.certificate.chain": node.certificate_pem(),
            "ssl.key.password": "geheim",
            "ssl.truststore.certificates": authority.pem,
            "ssl.client.auth": "required",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.protocol": "TLSv1.2",
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256",
        }
    )
    found = tls_parameters(config, "INSIDE")
    assert found.key_store is not None
    assert found.trust_store is not None
    assert found.key_store.chain == (ssl.PEM_cert_to_DER_cert(node.certificate_pem()),)
    assert found.key_store.key_password == "geheim"
    assert found.trust_store.certificates == (ssl.PEM_cert_to_DER_cert(authority.pem),)
    assert found.client_auth == "required"
    assert found.endpoint_identification == ""
    assert found.protocol == "TLSv1.2"
    assert found.enabled_protocols == ("TLSv1.2",)
    assert found.cipher_suites == (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_AES_128_GCM_SHA256",
    )
    other = tls_parameters(config, "OUTSIDE")
    assert other.key_store is None
    assert other.trust_store is None
    assert other.enabled_protocols == ("TLSv1.2", "TLSv1.3")


def test_settings_without_a_prefix_apply_to_all_listeners() -> None:
    config = config_of(
        {
            "ssl.keystore.location": str(KEYTOOL / "keystore.p12"),
            "ssl.keystore.password": "changeit",
            "ssl.truststore.location": str(KEYTOOL / "truststore.p12"),
            "ssl.truststore.password": "changeit",
        },
        prefix="",
    )
    inside, outside = (tls_parameters(config, name) for name in ("INSIDE", "OUTSIDE"))
    assert inside.key_store is not None
    assert inside.key_store == outside.key_store
    assert inside.trust_store == outside.trust_store


def test_errors_start_with_the_listener(tmp_path: Path) -> None:
    store = tmp_path / "node.jks"
    store.write_bytes(JKS)
    config = config_of({"ssl.keystore.location": str(store), "ssl.keystore.password": "x"})
    with pytest.raises(InvalidConfig, match=r"^listener INSIDE: ssl\.keystore\.location: .*JKS"):
        tls_parameters(config, "INSIDE")
