"""TLS versions and cipher suites by the names in Kafka's settings, which are Java's."""

import ssl
from collections.abc import Sequence
from typing import Final

from lograft.model.errors import InvalidConfig

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: Values of ssl.protocol: TLS means the newest version.
PROTOCOLS: Final = ("TLS", *VERSIONS)
TLS_1_3_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
)
#: Suites of TLS 1.2: IANA's name, which Java uses, and OpenSSL's.
TLS_1_2_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384": "DHE-DSS-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256": "DHE-DSS-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256": "DHE-DSS-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256": "DHE-DSS-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA": "DHE-DSS-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA": "DHE-DSS-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
#: Java lists it as a suite; it only signals secure renegotiation, which OpenSSL always has.
_RENEGOTIATION_MARK: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"


def restrict(
    context: ssl.SSLContext,
    *,
    where: str,
    protocol: str,
    enabled_protocols: Sequence[str],
    cipher_suites: Sequence[str],
) -> None:
    """Restricts the context to these versions and suites. Raises InvalidConfig; `where` is the
    start of its message.

    As in Java, `ssl.protocol` limits only connections that this side opens, and only TLSv1.2 has an
    effect; a version without an enabled suite is not negotiated.
    """
    if protocol not in PROTOCOLS:
        raise InvalidConfig(
            f"{where}ssl.protocol is {protocol}, but must be one of {', '.join(PROTOCOLS)}"
        )
    versions = _enabled_versions(where, enabled_protocols)
    if protocol == "TLSv1.2" and context.protocol is ssl.PROTOCOL_TLS_CLIENT:
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_2]
        if not versions:
            raise InvalidConfig(
                f"{where}ssl.protocol=TLSv1.2 rules out the only version in ssl.enabled.protocols,"
                " TLSv1.3: set ssl.protocol=TLSv1.3"
            )
    if cipher_suites:
        versions = _restrict_suites(context, where, versions, cipher_suites)
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _enabled_versions(where: str, names: Sequence[str]) -> list[ssl.TLSVersion]:
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise InvalidConfig(
            f"{where}ssl.enabled.protocols has {', '.join(unknown)}, but may only have"
            f" {' and '.join(VERSIONS)}: older versions are not secure (RFC 8996)"
        )
    return [VERSIONS[name] for name in names] or list(VERSIONS.values())


def _restrict_suites(
    context: ssl.SSLContext, where: str, versions: Sequence[ssl.TLSVersion], names: Sequence[str]
) -> list[ssl.TLSVersion]:
    """Sets the suites and returns the versions that have an enabled suite."""
    openssl_names = set(TLS_1_2_SUITES.values())
    older: list[str] = []
    newest: list[str] = []
    for name in names:
        if name in TLS_1_3_SUITES:
            newest.append(name)
        elif name in TLS_1_2_SUITES or name in openssl_names:
            older.append(TLS_1_2_SUITES.get(name, name))
        elif name != _RENEGOTIATION_MARK:
            raise InvalidConfig(
                f"{where}ssl.cipher.suites contains {name!r}, which is not a supported cipher"
                " suite: use Java's names, such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 or"
                " TLS_AES_256_GCM_SHA384"
            )
    suites = {ssl.TLSVersion.TLSv1_2: older, ssl.TLSVersion.TLSv1_3: newest}
    usable = [version for version in versions if suites[version]]
    if not usable:
        raise InvalidConfig(
            f"{where}ssl.cipher.suites has no suite of the versions that are enabled: suites of"
            " TLSv1.3 are " + ", ".join(TLS_1_3_SUITES)
        )
    if ssl.TLSVersion.TLSv1_3 in usable and set(newest) != set(TLS_1_3_SUITES):
        raise InvalidConfig(
            f"{where}ssl.cipher.suites has only some of the suites of TLSv1.3, and Python's ssl"
            f" module cannot choose among them: name all of them ({', '.join(TLS_1_3_SUITES)}), or"
            " none of them so that only TLSv1.2 is used"
        )
    if ssl.TLSVersion.TLSv1_2 in usable:
        _set_suites(context, where, older)
    return usable


def _set_suites(context: ssl.SSLContext, where: str, names: Sequence[str]) -> None:
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        available: set[str] = set()
    else:
        available = {suite["name"] for suite in context.get_ciphers()}
    # OpenSSL skips suites without which it was built.
    missing = [name for name in names if name not in available]
    if missing:
        raise InvalidConfig(
            f"{where}ssl.cipher.suites has {', '.join(missing)}, which {ssl.OPENSSL_VERSION} on"
            " this machine does not offer"
        )
