"""Settings of Kafka's clients that these clients do not support: Kafka's defaults, and the
reason."""

from collections.abc import Mapping
from typing import Final

from lograft.client.settings import UnsupportedSetting

_JVM: Final = "it configures the Java virtual machine"
_TOKENS: Final = (
    "tokens come from the function oauth_token or from sasl.oauthbearer.token.endpoint.url"
)
_KERBEROS: Final = "the Kerberos library gets and renews tickets by itself"

#: Settings of the Java client's token retrieval and validation.
_TOKEN_SETTINGS: Final[Mapping[str, str | None]] = {
    "sasl.client.callback.handler.class": None,
    "sasl.login.class": None,
    "sasl.login.refresh.buffer.seconds": "300",
    "sasl.login.refresh.min.period.seconds": "60",
    "sasl.login.refresh.window.jitter": "0.05",
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.claim.aud": None,
    "sasl.oauthbearer.assertion.claim.exp.seconds": "300",
    "sasl.oauthbearer.assertion.claim.iss": None,
    "sasl.oauthbearer.assertion.claim.jti.include": "false",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "60",
    "sasl.oauthbearer.assertion.claim.sub": None,
    "sasl.oauthbearer.assertion.file": None,
    "sasl.oauthbearer.assertion.private.key.file": None,
    "sasl.oauthbearer.assertion.private.key.passphrase": None,
    "sasl.oauthbearer.assertion.template.file": None,
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "sasl.oauthbearer.expected.audience": "[]",
    "sasl.oauthbearer.expected.issuer": None,
    "sasl.oauthbearer.header.urlencode": "false",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
    "sasl.oauthbearer.jwks.endpoint.url": None,
    "sasl.oauthbearer.jwt.retriever.class": (
        "class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    ),
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
}

UNSUPPORTED: Final[Mapping[str, UnsupportedSetting]] = {
    "config.providers": UnsupportedSetting(
        "[]", "the client does not resolve references in values"
    ),
    "security.providers": UnsupportedSetting(None, _JVM),
    "ssl.engine.factory.class": UnsupportedSetting(None, _JVM),
    "ssl.keymanager.algorithm": UnsupportedSetting("SunX509", _JVM),
    "ssl.trustmanager.algorithm": UnsupportedSetting("PKIX", _JVM),
    "ssl.provider": UnsupportedSetting(None, _JVM),
    "ssl.secure.random.implementation": UnsupportedSetting(None, _JVM),
    "sasl.kerberos.kinit.cmd": UnsupportedSetting("/usr/bin/kinit", _KERBEROS),
    "sasl.kerberos.min.time.before.relogin": UnsupportedSetting("60000", _KERBEROS),
    "sasl.kerberos.ticket.renew.jitter": UnsupportedSetting("0.05", _KERBEROS),
    "sasl.kerberos.ticket.renew.window.factor": UnsupportedSetting("0.8", _KERBEROS),
    **{name: UnsupportedSetting(default, _TOKENS) for name, default in _TOKEN_SETTINGS.items()},
}
