"""TLS versions and cipher suites that two sides negotiate, in memory."""

import ssl

import pytest

from lograft.model.errors import InvalidConfig
from lograft.net.tls_contexts import TlsParameters, client_context, server_context
from lograft.net.tls_stores import KeyStore, TrustStore
from lograft.net.tls_suites import TLS_1_2_SUITES, TLS_1_3_SUITES
from tests.unit.net.certificates import Authority
from tests.unit.net.handshakes import Negotiated, negotiate

BOTH = ("TLSv1.2", "TLSv1.3")
ECDSA_128, ECDSA_256 = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
)


class Restricted:
    """Stores for both sides, and handshakes with different restrictions on each side."""

    def __init__(self) -> None:
        authority = Authority()
        node = authority.issue()
        der = ssl.PEM_cert_to_DER_cert
        self._key_store = KeyStore(chain=(der(node.certificate_pem()),), key=node.key_pem())
        self._trust_store = TrustStore(certificates=(der(authority.pem),))

    def parameters(
        self,
        protocols: tuple[str, ...] = BOTH,
        suites: tuple[str, ...] = (),
        protocol: str = "TLSv1.3",
    ) -> TlsParameters:
        return TlsParameters(
            where="listener X: ",
            key_store=self._key_store,
            trust_store=self._trust_store,
            enabled_protocols=protocols,
            cipher_suites=suites,
            protocol=protocol,
        )

    def negotiate(self, server: TlsParameters, client: TlsParameters) -> Negotiated:
        return negotiate(server_context(server), client_context(client))


@pytest.fixture(scope="module")
def restricted() -> Restricted:
    return Restricted()


@pytest.mark.parametrize(
    ("server", "client", "version"),
    [
        (BOTH, BOTH, "TLSv1.3"),
        (("TLSv1.2",), BOTH, "TLSv1.2"),
        (BOTH, ("TLSv1.2",), "TLSv1.2"),
        (("TLSv1.3",), BOTH, "TLSv1.3"),
        ((), ("TLSv1.3",), "TLSv1.3"),
        ((), ("TLSv1.2",), "TLSv1.2"),
    ],
)
def test_enabled_protocols_determine_the_version(
    restricted: Restricted, server: tuple[str, ...], client: tuple[str, ...], version: str
) -> None:
    negotiated = restricted.negotiate(restricted.parameters(server), restricted.parameters(client))
    assert negotiated.version == version


@pytest.mark.parametrize(
    ("server", "client"),
    [(("TLSv1.3",), ("TLSv1.2",)), (("TLSv1.2",), ("TLSv1.3",))],
)
def test_handshake_without_common_version_fails(
    restricted: Restricted, server: tuple[str, ...], client: tuple[str, ...]
) -> None:
    with pytest.raises(ssl.SSLError, match=r"unsupported protocol|alert protocol version"):
        restricted.negotiate(restricted.parameters(server), restricted.parameters(client))


def test_ssl_protocol_limits_only_the_connecting_side(restricted: Restricted) -> None:
    """As in Java."""
    limited, free = restricted.parameters(protocol="TLSv1.2"), restricted.parameters(protocol="TLS")
    assert restricted.negotiate(limited, free).version == "TLSv1.3"
    assert restricted.negotiate(free, limited).version == "TLSv1.2"
    contradiction = restricted.parameters(("TLSv1.3",), protocol="TLSv1.2")
    with pytest.raises(InvalidConfig, match=r"listener X: ssl\.protocol=TLSv1\.2 rules out"):
        client_context(contradiction)


@pytest.mark.parametrize("name", [ECDSA_128, ECDSA_256, TLS_1_2_SUITES[ECDSA_256]])
def test_suite_of_tls_1_2_is_negotiated(restricted: Restricted, name: str) -> None:
    """Without a suite of TLS 1.3, that version is not negotiated."""
    negotiated = restricted.negotiate(
        restricted.parameters(suites=(name,)), restricted.parameters()
    )
    assert negotiated == Negotiated("TLSv1.2", TLS_1_2_SUITES.get(name, name))


def test_suites_of_tls_1_3_disable_tls_1_2(restricted: Restricted) -> None:
    server = restricted.parameters(suites=TLS_1_3_SUITES)
    assert restricted.negotiate(server, restricted.parameters()).version == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"unsupported protocol|alert protocol version"):
        restricted.negotiate(server, restricted.parameters(("TLSv1.2",)))


def test_suites_of_both_versions_are_negotiated(restricted: Restricted) -> None:
    suites = (*TLS_1_3_SUITES, ECDSA_128, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV")
    server = restricted.parameters(suites=suites)
    assert restricted.negotiate(server, restricted.parameters()).version == "TLSv1.3"
    older = restricted.parameters(("TLSv1.2",))
    assert restricted.negotiate(server, older).suite == TLS_1_2_SUITES[ECDSA_128]
    other = restricted.parameters(("TLSv1.2",), suites=(ECDSA_256,))
    with pytest.raises(ssl.SSLError, match=r"(?i)no.shared.cipher"):
        restricted.negotiate(server, other)


@pytest.mark.parametrize(
    ("protocols", "suites", "protocol", "reason"),
    [
        (("TLSv1.1", "TLSv1.2"), (), "TLS", "ssl.enabled.protocols has TLSv1.1, but may only have"),
        (BOTH, (), "SSLv3", "ssl.protocol is SSLv3, but must be one of TLS, TLSv1.2, TLSv1.3"),
        (
            BOTH,
            ("HIGH",),
            "TLS",
            "ssl.cipher.suites contains 'HIGH', which is not a supported cipher",
        ),
        (("TLSv1.3",), (ECDSA_128,), "TLS", "no suite of the versions that are enabled"),
        (("TLSv1.2",), TLS_1_3_SUITES, "TLS", "no suite of the versions that are enabled"),
        (BOTH, ("TLS_AES_256_GCM_SHA384",), "TLS", "only some of the suites of TLSv1.3"),
        (
            BOTH,
            ("TLS_AES_256_GCM_SHA384", ECDSA_128),
            "TLS",
            "name all of them (TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY13",
        ),
    ],
)
def test_unsupported_settings_are_rejected(
    restricted: Restricted,
    protocols: tuple[str, ...],
    suites: tuple[str, ...],
    protocol: str,
    reason: str,
) -> None:
    with pytest.raises(InvalidConfig) as rejected:
        server_context(restricted.parameters(protocols, suites, protocol))
    assert str(rejected.value).startswith("listener X: ssl.")
    assert reason in str(rejected.value)


def test_some_suites_of_tls_1_3_are_allowed_if_it_is_not_enabled(restricted: Restricted) -> None:
    suites = ("TLS_AES_256_GCM_SHA384", ECDSA_128)
    server = restricted.parameters(("TLSv1.2",), suites)
    assert restricted.negotiate(server, restricted.parameters()).version == "TLSv1.2"


def test_openssl_has_all_suites_by_these_names() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    known = {suite["name"] for suite in context.get_ciphers()}
    assert set(TLS_1_2_SUITES.values()) <= known
