"""The OAUTHBEARER settings of a listener: where the keys of the identity provider are, and what a
token must contain.

As in Kafka, each may have the prefix `listener.name.<listener>.oauthbearer.` or
`listener.name.<listener>.`. The class names of Kafka's handlers select a meaning; no class is
loaded. Kafka has defaults that accept any token; here a listener without a key source, an issuer
or an audience is rejected unless a setting of Lograft says that this is intended.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import OAUTHBEARER_MODULE, JaasEntry, parse_jaas

if TYPE_CHECKING:
    from lograft.model.settings.broker import BrokerConfig
    from lograft.model.settings.keys import ConfigValue

MECHANISM: Final = "OAUTHBEARER"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
EXPECTED_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
EXPECTED_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
HANDLER_CLASS: Final = "sasl.server.callback.handler.class"
VALIDATOR_CLASS: Final = "sasl.oauthbearer.jwt.validator.class"
ALLOWED_URLS: Final = "lograft.oauthbearer.allowed.urls"
ANY_ISSUER: Final = "lograft.oauthbearer.any.issuer"
ANY_AUDIENCE: Final = "lograft.oauthbearer.any.audience"
UNSECURED_TOKENS: Final = "lograft.oauthbearer.unsecured.tokens.enable"

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
#: Kafka's handler that verifies tokens, also under its name before Kafka 4.
VALIDATING_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
#: Kafka's default handler, which accepts tokens without a signature.
UNSECURED_HANDLER: Final = (
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
#: Both class names select the broker's validator.
VALIDATORS: Final = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
#: Options of the login module that configure TLS to the identity provider.
TRUST_OPTIONS: Final = (
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)


class ProviderUrl(NamedTuple):
    """A file, or an address of an identity provider."""

    text: str
    #: "file", "http" or "https".
    scheme: str
    host: str
    port: int
    #: Path of the file, or path and query of the request.
    path: str

    @property
    def location(self) -> str:
        """The location as shown in messages, without the query, which may contain a secret."""
        return self.host or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredTokens:
    """The options unsecuredValidator… of the login module."""

    subject_claim: str
    scope_claim: str
    required_scopes: frozenset[str]
    clock_skew_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearerSettings:
    #: Set if the listener accepts tokens without a signature, and no others.
    unsecured: UnsecuredTokens | None
    #: None with unsecured tokens only.
    key_set_url: ProviderUrl | None
    #: None: any.
    issuer: str | None
    audiences: frozenset[str] | None
    subject_claim: str
    scope_claim: str
    clock_skew_ms: int
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    #: Options of the login module by their names (`TRUST_OPTIONS`).
    trust: Mapping[str, str]

    def __repr__(self) -> str:
        return "OAuthBearerSettings([hidden])"


def oauthbearer_settings(config: "BrokerConfig", listener: str) -> OAuthBearerSettings:
    """Raises InvalidConfig with the first problem."""
    for _, problem in find_oauthbearer_problems(config, listener):
        raise InvalidConfig(problem)
    reader = _Reader(config, listener)
    entry = reader.login_module()
    is_unsecured = reader.handler == UNSECURED_HANDLER
    url = reader.text(JWKS_URL)
    audiences = reader.value(EXPECTED_AUDIENCE)
    assert isinstance(audiences, tuple)
    return OAuthBearerSettings(
        unsecured=_unsecured_tokens(entry) if is_unsecured else None,
        key_set_url=None if is_unsecured else parse_provider_url(url, setting=JWKS_URL),
        issuer=reader.text(EXPECTED_ISSUER) or None,
        audiences=frozenset(audiences) or None,
        subject_claim=reader.text("sasl.oauthbearer.sub.claim.name"),
        scope_claim=reader.text("sasl.oauthbearer.scope.claim.name"),
        clock_skew_ms=reader.number("sasl.oauthbearer.clock.skew.seconds") * 1000,
        refresh_ms=reader.number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        retry_backoff_ms=reader.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        retry_backoff_max_ms=reader.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        trust=_options(entry, TRUST_OPTIONS),
    )


def find_oauthbearer_problems(
    config: "BrokerConfig", listener: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields settings, and the reason why a listener cannot offer OAUTHBEARER with them."""
    reader = _Reader(config, listener)
    where = f"listener {listener} offers {MECHANISM}"
    handler = reader.handler
    if handler not in (*VALIDATING_HANDLERS, UNSECURED_HANDLER):
        yield (
            (reader.name(HANDLER_CLASS), HANDLER_CLASS),
            f"{reader.name(HANDLER_CLASS)} is not supported: Java classes are not loaded. Set it"
            f" to {VALIDATING_HANDLERS[0]} or remove it",
        )
        return
    if handler == UNSECURED_HANDLER:
        if not reader.flag(UNSECURED_TOKENS):
            yield (
                (reader.name(HANDLER_CLASS), UNSECURED_TOKENS),
                f"{where} with unsigned tokens, which anyone can forge: set {HANDLER_CLASS} to"
                f" {VALIDATING_HANDLERS[0]}, or {UNSECURED_TOKENS}=true for tests",
            )
        else:
            yield from _find_unsecured_problems(reader)
        return
    yield from _find_key_problems(reader, where)
    if not reader.text(EXPECTED_ISSUER) and not reader.flag(ANY_ISSUER):
        yield (
            (EXPECTED_ISSUER, reader.name(EXPECTED_ISSUER), ANY_ISSUER),
            f"{where}, but accepts tokens of any issuer: set {EXPECTED_ISSUER}, or"
            f" {ANY_ISSUER}=true if this is intended",
        )
    if not reader.value(EXPECTED_AUDIENCE) and not reader.flag(ANY_AUDIENCE):
        yield (
            (EXPECTED_AUDIENCE, reader.name(EXPECTED_AUDIENCE), ANY_AUDIENCE),
            f"{where}, but accepts tokens for other services: set {EXPECTED_AUDIENCE}, or"
            f" {ANY_AUDIENCE}=true if this is intended",
        )
    if reader.text(VALIDATOR_CLASS) not in VALIDATORS:
        yield (
            (VALIDATOR_CLASS, reader.name(VALIDATOR_CLASS)),
            f"{VALIDATOR_CLASS} is not supported: Java classes are not loaded. Remove it",
        )
    for name in ("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.scope.claim.name"):
        if not reader.text(name).strip():
            yield (name, reader.name(name)), f"{name} must not be empty"
    for name, least in (
        ("sasl.oauthbearer.clock.skew.seconds", 0),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", 1),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 1),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 1),
    ):
        if reader.number(name) < least:
            yield (name, reader.name(name)), f"{name} must be at least {least}"


def _find_key_problems(reader: "_Reader", where: str) -> Iterator[tuple[tuple[str, ...], str]]:
    names = (JWKS_URL, reader.name(JWKS_URL))
    url = reader.text(JWKS_URL)
    if not url:
        yield names, f"{where}, but has no keys to verify tokens: set {JWKS_URL}"
        return
    try:
        parse_provider_url(url, setting=JWKS_URL)
    except InvalidConfig as error:
        yield names, str(error)
        return
    if url not in reader.allowed_urls:
        yield (
            (*names, ALLOWED_URLS),
            f"{JWKS_URL} is not an allowed URL: add it to {ALLOWED_URLS}, which replaces Kafka's"
            " system property org.apache.kafka.sasl.oauthbearer.allowed.urls",
        )


def parse_provider_url(text: str, *, setting: str) -> ProviderUrl:
    """Raises InvalidConfig, whose message does not include the URL, because it may contain a
    password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidConfig(f"{setting} is not a valid URL") from None
    if any(ord(character) <= ord(" ") or ord(character) > ord("~") for character in text):
        raise InvalidConfig(f"{setting} has characters that a URL must encode with %")
    scheme = parts.scheme.lower()
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidConfig(f"{setting} must have an absolute path: file:///path")
        return ProviderUrl(text, scheme, "", 0, unquote(parts.path))
    if scheme not in ("http", "https"):
        raise InvalidConfig(f"{setting} must start with https:, http: or file:")
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise InvalidConfig(f"{setting} must have a host, and neither a user nor a fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    default_port = 443 if scheme == "https" else 80
    return ProviderUrl(text, scheme, parts.hostname, port or default_port, path)


def _find_unsecured_problems(reader: "_Reader") -> Iterator[tuple[tuple[str, ...], str]]:
    skew = (reader.login_module_option("unsecuredValidatorAllowableClockSkewMs") or "0").strip()
    if not skew.isdecimal() or len(skew) > 15:
        yield (
            (reader.name("sasl.jaas.config"),),
            f"{reader.name('sasl.jaas.config')}: unsecuredValidatorAllowableClockSkewMs must be a"
            " number of milliseconds",
        )


def _unsecured_tokens(entry: JaasEntry | None) -> UnsecuredTokens:
    options = _options(
        entry,
        (
            "unsecuredValidatorPrincipalClaimName",
            "unsecuredValidatorScopeClaimName",
            "unsecuredValidatorRequiredScope",
            "unsecuredValidatorAllowableClockSkewMs",
        ),
    )
    return UnsecuredTokens(
        subject_claim=options.get("unsecuredValidatorPrincipalClaimName") or "sub",
        scope_claim=options.get("unsecuredValidatorScopeClaimName") or "scope",
        required_scopes=frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
        clock_skew_ms=int(options.get("unsecuredValidatorAllowableClockSkewMs") or 0),
    )


def _options(entry: JaasEntry | None, names: tuple[str, ...]) -> dict[str, str]:
    if entry is None:
        return {}
    return {name: value for name in names if (value := entry.option(name)) is not None}


class _Reader:
    """Reads the settings of the mechanism on one listener."""

    def __init__(self, config: "BrokerConfig", listener: str) -> None:
        self._config = config
        self._listener = listener

    def name(self, name: str) -> str:
        """Returns the name with all prefixes."""
        return f"listener.name.{self._listener.lower()}.oauthbearer.{name}"

    def value(self, name: str) -> "ConfigValue":
        from lograft.model.settings.broker_table import BROKER_CONFIGS

        text = self._config.listener_text(f"oauthbearer.{name}", listener=self._listener)
        if text is None:
            text = self._config.text(name, listener=self._listener)
        return BROKER_CONFIGS[name].parse(text)

    def text(self, name: str) -> str:
        value = self.value(name)
        return value.strip() if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        return self._config.value(name) is True

    @property
    def handler(self) -> str:
        """The class name of the handler. Unlike Kafka's, the default verifies signatures."""
        return self.text(HANDLER_CLASS) or VALIDATING_HANDLERS[0]

    @property
    def allowed_urls(self) -> tuple[str, ...]:
        urls = self._config.value(ALLOWED_URLS)
        assert isinstance(urls, tuple)
        return urls

    def login_module(self) -> JaasEntry | None:
        name = "oauthbearer.sasl.jaas.config"
        text = self._config.listener_text(name, listener=self._listener)
        entry = None if text is None else parse_jaas(text, setting=name)
        return entry if entry is not None and entry.module == OAUTHBEARER_MODULE else None

    def login_module_option(self, name: str) -> str | None:
        entry = self.login_module()
        return None if entry is None else entry.option(name)
