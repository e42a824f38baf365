"""Reads the `ssl.*` settings of a node's listener, with or without its prefix."""

from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.keys import split_list
from lograft.net.revocation_lists import read_revocation_lists
from lograft.net.tls_contexts import TlsParameters
from lograft.net.tls_stores import StoreSettings, read_key_store, read_trust_store


def tls_parameters(config: BrokerConfig, listener: str) -> TlsParameters:
    """Returns the parameters for accepting connections at this listener of the node, and for
    connecting to the same listener of other nodes: as in Kafka, both use the same stores. Reads the
    files of the stores. Raises InvalidConfig."""
    where = f"listener {listener}: "

    def text(name: str) -> str:
        return (config.text(name, listener=listener) or "").strip()

    def secret(name: str) -> str | None:
        return config.secret(name, listener=listener) or None

    key_store = StoreSettings(
        store="keystore",
        where=where,
        type=text("ssl.keystore.type"),
        location=text("ssl.keystore.location") or None,
        password=secret("ssl.keystore.password"),
        certificates=secret("ssl.keystore.certificate.chain"),
        key=secret("ssl.keystore.key"),
        key_password=secret("ssl.key.password"),
    )
    trust_store = StoreSettings(
        store="truststore",
        where=where,
        type=text("ssl.truststore.type"),
        location=text("ssl.truststore.location") or None,
        password=secret("ssl.truststore.password"),
        certificates=secret("ssl.truststore.certificates"),
    )
    return TlsParameters(
        where=where,
        key_store=read_key_store(key_store),
        trust_store=read_trust_store(trust_store),
        client_auth=(text("ssl.client.auth") or "none").lower(),
        endpoint_identification=text("ssl.endpoint.identification.algorithm"),
        protocol=text("ssl.protocol"),
        enabled_protocols=tuple(split_list(text("ssl.enabled.protocols"))),
        cipher_suites=tuple(split_list(text("ssl.cipher.suites"))),
        revocation_lists=read_revocation_lists(text("lograft.ssl.crl.location"), where=where),
    )
