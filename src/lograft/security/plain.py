"""The PLAIN mechanism of a server (RFC 4616): one message with user name and password."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from lograft.model.settings.keys import Secret
from lograft.security.sasl import MALFORMED, OTHER_AUTHORIZATION_ID, Failure, Step, Success

#: Longer messages are rejected before they are parsed.
MESSAGE_BYTES_MAX: Final = 16 << 10
_REJECTED: Final = "Authentication failed: Invalid username or password"


class PlainExchange:
    """`passwords` are those of all users."""

    __slots__ = ("_passwords",)

    def __init__(self, passwords: Mapping[str, Secret]) -> None:
        self._passwords = passwords

    def step(self, message: bytes) -> Step:
        if len(message) > MESSAGE_BYTES_MAX:
            return Failure(reason="the message is too long")
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            return Failure(reason=MALFORMED)
        if len(parts) != 3:
            return Failure(
                reason=MALFORMED,
                message=f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}",
            )
        authorization_id, user, password = parts
        if not user:
            return Failure(
                reason="no user name", message="Authentication failed: username not specified"
            )
        if not password:
            return Failure(
                reason="no password",
                user=user,
                message="Authentication failed: password not specified",
            )
        expected = self._passwords.get(user)
        is_right = _is_equal(password, "" if expected is None else expected.value)
        if expected is None:
            return Failure(reason="unknown user", user=user, message=_REJECTED)
        if not is_right:
            return Failure(reason="wrong password", user=user, message=_REJECTED)
        if authorization_id not in ("", user):
            return Failure(
                reason="the authorization id is not the user name",
                user=user,
                message=OTHER_AUTHORIZATION_ID,
            )
        return Success(user=user)


def _is_equal(password: str, expected: str) -> bool:
    """Compares digests: the time depends neither on the expected password nor on its length."""
    return hmac.compare_digest(
        hashlib.sha256(password.encode()).digest(), hashlib.sha256(expected.encode()).digest()
    )
