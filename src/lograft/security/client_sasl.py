"""SASL exchanges of a client, and the requests that carry their messages.

A `ClientExchange` is one login with one mechanism: `start` returns the first message, and `step` an
answer to each message of the server:

    bytes ... bytes, then Finished or Rejected; nothing may follow either of these.

`ClientLogin` wraps the messages into SaslHandshake and SaslAuthenticate requests. Clients and nodes
send these over their own connections:

    step = login.on_handshake(await request(login.begin()))
    while isinstance(step, SaslAuthenticateRequest):
        step = login.on_response(await request(step))

Neither performs I/O, and neither raises because of what the server sends. `client_mechanisms`
creates the exchange of a mechanism.
"""

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from lograft.model.errors import ErrorCode
from lograft.model.printable_text import printable
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: Version 0 sends the messages of the mechanism without headers; every server since Kafka 1.0
#: supports version 1.
HANDSHAKE_VERSION_MIN: Final = 1
#: A session is renewed after this fraction of its lifetime, chosen at random between the two, so
#: that the clients of a restarted server do not all return at the same time.
RENEW_AT_MIN: Final = 0.85
RENEW_AT_MAX: Final = 0.95
#: Servers reject more frequent re-authentication.
RENEWAL_INTERVAL_MS: Final = 1_000
_ADVICE: Final = {"OAUTHBEARER": "check the token and the server's issuer and audience"}
_CHECK_CREDENTIALS: Final = "check the user name and the password"


@dataclass(frozen=True, slots=True)
class Finished:
    """The exchange is complete, and the server has proved what its mechanism lets it prove."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The client or the server ended the login. Never contains a secret."""

    cause: str
    #: What the user can do; empty if unknown.
    advice: str = ""
    #: The server's error code; NONE if the client itself ended the login.
    code: int = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LoggedIn:
    #: When the server ends the session; 0: never.
    lifetime_ms: int


ClientStep: TypeAlias = bytes | Finished | Rejected
LoginStep: TypeAlias = SaslAuthenticateRequest | LoggedIn | Rejected


class ClientExchange(Protocol):
    """One login with one mechanism. Its `repr` contains no secret."""

    def start(self) -> bytes:
        """Returns the first message to the server."""

    def step(self, challenge: bytes) -> ClientStep:
        """Returns the next message to the server; empty if the mechanism requires no further
        message. Never raises."""


class ClientLogin:
    """Created for each login, and for each renewal of a session."""

    def __init__(self, mechanism: str, exchange: ClientExchange) -> None:
        self.mechanism = mechanism
        self._exchange = exchange

    def begin(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(mechanism=self.mechanism)

    def on_handshake(self, response: SaslHandshakeResponse) -> LoginStep:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(map(printable, response.mechanisms)) or "none"
            return Rejected(
                f"the server has not enabled it; enabled mechanisms: {enabled}",
                "select one of these",
                code=response.error_code,
            )
        if response.error_code:
            return Rejected(
                f"the server returned {_error_name(response.error_code)} to SaslHandshake",
                code=response.error_code,
            )
        return SaslAuthenticateRequest(auth_bytes=self._exchange.start())

    def on_response(self, response: SaslAuthenticateResponse) -> LoginStep:
        if response.error_code:
            return Rejected(
                printable(response.error_message or _error_name(response.error_code)),
                _ADVICE.get(self.mechanism, _CHECK_CREDENTIALS),
                code=response.error_code,
            )
        match self._exchange.step(response.auth_bytes):
            case Finished():
                return LoggedIn(max(0, response.session_lifetime_ms))
            case Rejected() as rejected:
                return rejected
            case message:
                return SaslAuthenticateRequest(auth_bytes=message)


def renewal_delay_ms(lifetime_ms: int, random_fraction: float) -> int:
    """Returns after how many milliseconds a session is renewed; `random_fraction`: 0 to 1."""
    share = RENEW_AT_MIN + (RENEW_AT_MAX - RENEW_AT_MIN) * random_fraction
    return int(lifetime_ms * share)


def _error_name(code: int) -> str:
    known = code in ErrorCode.__members__.values()
    return ErrorCode(code).name if known else f"error {code}"
