"""Bearer tokens of a client that come from a file or from an identity provider.

The settings are Kafka's: `sasl.oauthbearer.token.endpoint.url` is a file: URL, which is read for
each login, or an http(s) URL, from which a token is requested with the client's id and secret
(RFC 6749, client credentials). A requested token is used until most of its lifetime has passed.
"""

import asyncio
import base64
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from lograft.model.errors import InvalidConfig
from lograft.model.seams import Runtime
from lograft.model.settings.jaas import OAUTHBEARER_MODULE, parse_jaas
from lograft.model.settings.oauthbearer import TRUST_OPTIONS, ProviderUrl, parse_provider_url
from lograft.security.base64url import decode_base64url
from lograft.security.strict_json import parse_object

URL_SETTING: Final = "sasl.oauthbearer.token.endpoint.url"
RESPONSE_BYTES_MAX: Final = 128 << 10
#: The characters of a bearer token in RFC 6750.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class TokenNotRetrieved(Exception):
    """The message contains neither a part of the response nor a secret."""

    def __init__(self, message: str, *, is_retriable: bool = False) -> None:
        super().__init__(message)
        #: The same request may succeed later.
        self.is_retriable = is_retriable


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """Where the tokens are, and how the client identifies itself there."""

    url: ProviderUrl
    client_id: str | None
    client_secret: str | None = field(repr=False)
    scope: str | None
    #: Options of the login module by their names (`TRUST_OPTIONS`).
    trust: dict[str, str] = field(repr=False)
    timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    #: The part of a token's lifetime after which another one is requested.
    refresh_factor: float


def token_endpoint(
    url: str,
    *,
    jaas_config: str | None,
    client_id: str | None,
    client_secret: str | None,
    scope: str | None,
    **others: Any,
) -> TokenEndpoint:
    """Raises InvalidConfig. The options of the login module are used for what the settings do not
    contain, as before Kafka 4.1."""
    options: dict[str, str] = {}
    if jaas_config is not None:
        entry = parse_jaas(jaas_config, setting="sasl.jaas.config")
        if entry.module != OAUTHBEARER_MODULE:
            raise InvalidConfig(
                f"sasl.jaas.config names the login module {entry.module}, but OAUTHBEARER requires"
                f" {OAUTHBEARER_MODULE}"
            )
        options = {name: secret.value for name, secret in entry.options.items()}
    parsed = parse_provider_url(url, setting=URL_SETTING)
    client_id = client_id or options.get("clientId")
    client_secret = client_secret or options.get("clientSecret")
    if parsed.scheme != "file" and not (client_id and client_secret):
        raise InvalidConfig(
            f"{URL_SETTING} requires sasl.oauthbearer.client.credentials.client.id and"
            " sasl.oauthbearer.client.credentials.client.secret, or clientId and clientSecret in"
            " sasl.jaas.config"
        )
    return TokenEndpoint(
        url=parsed,
        client_id=client_id,
        client_secret=client_secret,
        scope=scope or options.get("scope"),
        trust={name: options[name] for name in TRUST_OPTIONS if name in options},
        **others,
    )


class TokenRetriever:
    """Retrieves tokens for one client. `token` returns a token at any time."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._token = ""
        #: In wall clock time. The token is used until `_expires_ms`; a new one is requested after
        #: `_refresh_ms`.
        self._expires_ms = 0
        self._refresh_ms = 0
        self._lock = asyncio.Lock()

    async def token(self, runtime: Runtime) -> str:
        """Raises TokenNotRetrieved."""
        # Connections that open at the same time use the same token.
        async with self._lock:
            if runtime.clock.wall_ms() < self._refresh_ms:
                return self._token
            try:
                return await self._retrieve_with_retries(runtime)
            except TokenNotRetrieved:
                if runtime.clock.wall_ms() < self._expires_ms:
                    return self._token
                raise

    async def _retrieve_with_retries(self, runtime: Runtime) -> str:
        """As in Kafka, retries until sasl.login.retry.backoff.max.ms have passed."""
        endpoint = self._endpoint
        give_up_ms = runtime.clock.mono_ms() + endpoint.retry_backoff_max_ms
        pause_ms = max(endpoint.retry_backoff_ms, 1)
        while True:
            try:
                return await self._retrieve(runtime)
            except TokenNotRetrieved as error:
                is_last = runtime.clock.mono_ms() + pause_ms > give_up_ms
                if is_last or endpoint.url.scheme == "file" or not error.is_retriable:
                    raise
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, endpoint.retry_backoff_max_ms)

    async def _retrieve(self, runtime: Runtime) -> str:
        # Imported here because most clients do not need h11.
        from lograft.net.http_requests import HttpFailed
        from lograft.net.identity_providers import read_url

        endpoint, now_ms = self._endpoint, runtime.clock.wall_ms()
        is_file = endpoint.url.scheme == "file"
        try:
            data = await read_url(
                runtime,
                endpoint.url,
                trust=endpoint.trust,
                form=None if is_file else self._form(),
                headers=[] if is_file else self._headers(),
                bytes_max=RESPONSE_BYTES_MAX,
                timeout_ms=endpoint.timeout_ms,
            )
        except (HttpFailed, InvalidConfig) as error:
            status = error.status if isinstance(error, HttpFailed) else None
            is_retriable = status is None or status in (408, 429) or status >= 500
            raise TokenNotRetrieved(
                f"no token from {endpoint.url.location}: {error}", is_retriable=is_retriable
            ) from None
        token, lifetime_s = _parse_file(data) if is_file else _parse_response(data)
        if not _TOKEN.fullmatch(token):
            raise TokenNotRetrieved(f"{endpoint.url.location} has no valid token")
        if not is_file:
            self._keep(token, lifetime_s, now_ms)
        return token

    def _keep(self, token: str, lifetime_s: float | None, now_ms: int) -> None:
        expires_ms = _expiry_ms(token)
        if expires_ms is None and lifetime_s is not None:
            expires_ms = now_ms + int(lifetime_s * 1000)
        if expires_ms is None:
            return
        self._token, self._expires_ms = token, expires_ms
        self._refresh_ms = now_ms + int((expires_ms - now_ms) * self._endpoint.refresh_factor)

    def _form(self) -> bytes:
        values = {"grant_type": "client_credentials"}
        if self._endpoint.scope:
            values["scope"] = self._endpoint.scope
        return urlencode(values).encode()

    def _headers(self) -> list[tuple[str, str]]:
        endpoint = self._endpoint
        identity = f"{endpoint.client_id}:{endpoint.client_secret}".encode()
        return [
            ("Authorization", f"Basic {base64.b64encode(identity).decode()}"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ]


def _parse_file(data: bytes) -> tuple[str, None]:
    try:
        return data.decode("ascii").strip(), None
    except UnicodeDecodeError:
        raise TokenNotRetrieved("the file has no valid token") from None


def _parse_response(data: bytes) -> tuple[str, float | None]:
    try:
        response = parse_object(data)
    except ValueError as error:
        raise TokenNotRetrieved(
            f"the response from the identity provider is invalid: {error}"
        ) from None
    token = response.get("access_token")
    if not isinstance(token, str):
        raise TokenNotRetrieved("the response from the identity provider has no access_token")
    return token, _positive(response.get("expires_in"))


def _expiry_ms(token: str) -> int | None:
    """Returns the claim exp of a JSON Web Token, which is not verified here; None for others."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        expires_s = parse_object(decode_base64url(parts[1])).get("exp")
    except ValueError:
        return None
    seconds = _positive(expires_s)
    return None if seconds is None else int(seconds * 1000)


def _positive(seconds: Any) -> float | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return seconds if 0 < seconds < 1 << 40 else None
