"""The OAUTHBEARER mechanism of a server (RFC 7628): the client sends a bearer token.

    client  n,,\\x01auth=Bearer eyJhbGciOi…\\x01\\x01
    server  (empty)                              the token is accepted
            {"status":"invalid_token"}           it is rejected; the client acknowledges with \\x01,
                                                 and the exchange ends

As in Kafka, a client may request only the identity that is in the token, and extensions
(name=value between \\x01) are accepted without an effect.
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from lograft.security.sasl import MALFORMED, Challenge, Failure, Step, Success

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
#: A token, and the name and value of everything else in the message.
MESSAGE_BYTES_MAX: Final = 64 << 10

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_MESSAGE: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01"
)
_BEARER: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[A-Za-z0-9_.\-]+)")


class AcceptedToken(NamedTuple):
    user: str
    #: In wall clock time.
    expires_at_ms: int


class RejectedToken(NamedTuple):
    #: For the security log; without parts of the token.
    reason: str
    #: The error code of RFC 6750, for the client.
    status: str = INVALID_TOKEN
    #: The scope that the token lacks.
    scope: str | None = None
    user: str = ""


#: Checks a token. Returns immediately and never raises.
CheckToken: TypeAlias = Callable[[str], AcceptedToken | RejectedToken]


class OAuthBearerExchange:
    """One login."""

    __slots__ = ("_check", "_rejection")

    def __init__(self, check_token: CheckToken) -> None:
        self._check = check_token
        #: The failure after the acknowledgement of the client.
        self._rejection: Failure | None = None

    def step(self, message: bytes) -> Step:
        if self._rejection is not None:
            # Any message other than the acknowledgement also ends the exchange.
            return self._rejection
        if len(message) > MESSAGE_BYTES_MAX:
            return Failure(reason="the message is too long")
        parsed = _parse_message(message)
        if isinstance(parsed, Failure):
            return parsed
        authorization_id, token = parsed
        outcome = self._check(token)
        if isinstance(outcome, RejectedToken):
            error = {"status": outcome.status}
            if outcome.scope is not None:
                error["scope"] = outcome.scope
            text = json.dumps(error, separators=(",", ":"))
            self._rejection = Failure(reason=outcome.reason, user=outcome.user, message=text)
            return Challenge(text.encode(), failure=self._rejection)
        if authorization_id not in ("", outcome.user):
            return Failure(
                reason="the authorization id is not the subject of the token",
                user=outcome.user,
                message="Authentication failed: Client requested an authorization id that is"
                " different from the token's principal name",
            )
        return Success(user=outcome.user, expires_at_ms=outcome.expires_at_ms)


def _parse_message(message: bytes) -> tuple[str, str] | Failure:
    """Returns the authorization id and the token."""
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        return Failure(reason=MALFORMED)
    if match is None:
        return Failure(reason=MALFORMED, message="Invalid OAUTHBEARER client first message")
    pairs = [pair.partition("=")[::2] for pair in match["pairs"].split("\x01") if pair]
    values = dict(pairs)
    if len(values) != len(pairs):
        return Failure(reason="a part of the message occurs twice")
    if "auth" not in values:
        return Failure(
            reason="no token",
            message="Invalid OAUTHBEARER client first message: 'auth' not specified",
        )
    bearer = _BEARER.fullmatch(values["auth"])
    if bearer is None or bearer["scheme"].lower() != "bearer":
        return Failure(
            reason="no bearer token",
            message="Invalid OAUTHBEARER client first message: invalid 'auth' format",
        )
    authorization_id = (match["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, bearer["token"]
