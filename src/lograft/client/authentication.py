"""SASL authentication of the client: PLAIN, SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628)."""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from lograft.client.broker_connection import BrokerConnection
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import AuthenticationFailed
from lograft.model.errors import ErrorCode, InvalidConfig
from lograft.model.seams import Runtime
from lograft.security.scram_credentials import ITERATIONS_MIN, ScramMechanism, salt_password
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_JAAS_OPTION: Final = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
#: Bounds the work that a malicious broker can demand.
_ITERATIONS_MAX: Final = 1_000_000
#: Fraction of the session lifetime after which the client authenticates again.
_RENEW_AT: Final = 0.85
_GS2_HEADER: Final = "n,,"


async def authenticate(
    connection: BrokerConnection, settings: ClientSettings, runtime: Runtime
) -> None:
    """Raises AuthenticationFailed, or OutcomeUnknown if the connection was lost."""
    login = _Login(connection, settings)
    await login.negotiate_mechanism()
    match settings.sasl_mechanism:
        case "PLAIN":
            name, password = credentials(settings)
            await login.exchange(f"\0{name}\0{password}".encode())
        case "OAUTHBEARER":
            if settings.oauth_token is None:
                raise InvalidConfig(
                    "sasl.mechanism OAUTHBEARER requires oauth_token, an async function that"
                    " returns a token"
                )
            token = await settings.oauth_token()
            await login.exchange(f"{_GS2_HEADER}\x01auth=Bearer {token}\x01\x01".encode())
        case mechanism:
            await _scram(login, ScramMechanism[mechanism.replace("-", "_")], settings, runtime)
    if login.lifetime_ms > 0:
        connection.expires_at_ms = runtime.clock.mono_ms() + int(login.lifetime_ms * _RENEW_AT)


def credentials(settings: ClientSettings) -> tuple[str, str]:
    """Returns sasl.username and sasl.password, or those in sasl.jaas.config."""
    name, password = settings.sasl_username, settings.sasl_password
    if settings.sasl_jaas_config is not None:
        options = dict(_JAAS_OPTION.findall(settings.sasl_jaas_config.reveal()))
        name = name or options.get("username")
        secret = options.get("password")
    else:
        secret = None
    if password is not None:
        secret = password.reveal()
    if name is None or secret is None:
        raise InvalidConfig(
            f"sasl.mechanism {settings.sasl_mechanism} requires sasl.username and sasl.password"
            " (or both in sasl.jaas.config)"
        )
    return name, secret


class _Login:
    def __init__(self, connection: BrokerConnection, settings: ClientSettings) -> None:
        self._connection = connection
        self._mechanism = settings.sasl_mechanism
        self._timeout_ms = settings.request_timeout_ms
        self.lifetime_ms = 0

    async def negotiate_mechanism(self) -> None:
        response = await self._connection.request(
            SaslHandshakeRequest(mechanism=self._mechanism),
            SaslHandshakeResponse,
            timeout_ms=self._timeout_ms,
        )
        if response.error_code:
            enabled = ", ".join(response.mechanisms) or "none"
            raise self.failure(
                f"the broker does not support {self._mechanism}; it supports {enabled}",
                "set sasl.mechanism to one of them",
            )

    async def exchange(self, message: bytes) -> bytes:
        """Sends a SASL message and returns that of the broker."""
        response = await self._connection.request(
            SaslAuthenticateRequest(auth_bytes=message),
            SaslAuthenticateResponse,
            timeout_ms=self._timeout_ms,
        )
        if response.error_code:
            known = response.error_code in ErrorCode.__members__.values()
            name = ErrorCode(response.error_code).name if known else str(response.error_code)
            raise self.failure(
                response.error_message or name, "check the user name and the password"
            )
        self.lifetime_ms = response.session_lifetime_ms
        return response.auth_bytes

    def failure(self, cause: str, advice: str = "") -> AuthenticationFailed:
        return AuthenticationFailed(self._connection.address, "authentication", cause, advice)


async def _scram(
    login: _Login, mechanism: ScramMechanism, settings: ClientSettings, runtime: Runtime
) -> None:
    name, password = credentials(settings)
    nonce = base64.b64encode(runtime.randomness.bytes(24)).decode()
    first_bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = (await login.exchange((_GS2_HEADER + first_bare).encode())).decode()
    salt, iterations, whole_nonce = _read_challenge(login, challenge, nonce)
    final_bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={whole_nonce}"
    signed = f"{first_bare},{challenge},{final_bare}".encode()

    hash_name = mechanism.hash_name
    salted_password = salt_password(mechanism, password, salt, iterations)
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = await login.exchange(f"{final_bare},p={base64.b64encode(proof).decode()}".encode())

    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, hash_name))
    if not hmac.compare_digest(last.split(b",")[0], expected):
        raise login.failure(
            "the broker did not prove that it knows the password: it may be an impostor"
        )


def _read_challenge(login: _Login, challenge: str, nonce: str) -> tuple[bytes, int, str]:
    parts = dict(part.partition("=")[::2] for part in challenge.split(","))
    try:
        salt = base64.b64decode(parts["s"], validate=True)
        iterations = int(parts["i"])
        whole_nonce = parts["r"]
    except (KeyError, ValueError, binascii.Error):
        raise login.failure("the broker's SCRAM challenge is malformed") from None
    if not whole_nonce.startswith(nonce) or whole_nonce == nonce:
        raise login.failure("the broker's SCRAM challenge has a wrong nonce")
    if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise login.failure(
            f"the broker requires {iterations} SCRAM iterations, but allowed are"
            f" {ITERATIONS_MIN} to {_ITERATIONS_MAX}"
        )
    return salt, iterations, whole_nonce
