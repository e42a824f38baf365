"""The SCRAM mechanisms of a client (RFC 5802 and RFC 7677), without channel binding.

The client proves that it knows the password without sending it, and accepts the login only if the
server proves that it knows the credential derived from the password.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from lograft.model.printable_text import printable
from lograft.security.client_sasl import ClientStep, Finished, Rejected
from lograft.security.scram import MESSAGE_BYTES_MAX
from lograft.security.scram_credentials import ITERATIONS_MIN, ScramMechanism, salt_password

#: Bounds the work that a malicious server can demand.
CLIENT_ITERATIONS_MAX: Final = 1_000_000

_HEADER: Final = "n,,"
_BASE64: Final = r"[A-Za-z0-9+/=]+"
_VALUE: Final = r"[^\x00,]+"
_CHALLENGE: Final = re.compile(
    rf"(?P<mandatory>m={_VALUE},)?r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>{_BASE64})"
    rf",i=(?P<iterations>[0-9]{{1,9}})(?:,[A-Za-z]+={_VALUE})*"
)
_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}))(?:,[A-Za-z]+={_VALUE})*"
)
_IMPOSTOR: Final = "the server did not prove that it knows the password: it may be an impostor"


class ScramClientExchange:
    """One login. `nonce` is random; `token_auth`: user and password are the id and the HMAC of a
    delegation token."""

    __slots__ = ("_expected", "_first", "_mechanism", "_nonce", "_password")

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        nonce: bytes,
        token_auth: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = base64.b64encode(nonce).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        extensions = ",tokenauth=true" if token_auth else ""
        self._first = f"n={name},r={self._nonce}{extensions}"
        #: The signature that the server has to send; None before its challenge.
        self._expected: bytes | None = None

    def start(self) -> bytes:
        return (_HEADER + self._first).encode()

    def step(self, challenge: bytes) -> ClientStep:
        if len(challenge) > MESSAGE_BYTES_MAX:
            return Rejected("the server's SCRAM message is too long")
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            return Rejected("the server's SCRAM message is malformed")
        if self._expected is None:
            return self._answer(text)
        return _check_final(text, self._expected)

    def _answer(self, challenge: str) -> ClientStep:
        match = _CHALLENGE.fullmatch(challenge)
        salt = None if match is None else _decode_base64(match["salt"])
        if match is None or not salt:
            return Rejected("the server's SCRAM challenge is malformed")
        if match["mandatory"] is not None:
            return Rejected("the server's SCRAM challenge requires an unknown extension")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            return Rejected("the nonce in the server's SCRAM challenge is wrong")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            return Rejected(
                f"the server requires {iterations} SCRAM iterations, but only {ITERATIONS_MIN} to"
                f" {CLIENT_ITERATIONS_MAX} are allowed"
            )
        final = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        proof = self._prove(f"{self._first},{challenge},{final}".encode(), salt, iterations)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _prove(self, signed: bytes, salt: bytes, iterations: int) -> bytes:
        hash_name = self._mechanism.hash_name
        salted_password = salt_password(self._mechanism, self._password, salt, iterations)
        server_key = hmac.digest(salted_password, b"Server Key", hash_name)
        self._expected = hmac.digest(server_key, signed, hash_name)
        client_key = hmac.digest(salted_password, b"Client Key", hash_name)
        stored_key = hashlib.new(hash_name, client_key).digest()
        signature = hmac.digest(stored_key, signed, hash_name)
        return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def _check_final(text: str, expected: bytes) -> ClientStep:
    match = _FINAL.fullmatch(text)
    if match is None:
        return Rejected(_IMPOSTOR)
    if match["error"] is not None:
        return Rejected(f"the server returned the SCRAM error {printable(match['error'])}")
    signature = _decode_base64(match["signature"])
    if signature is None or not hmac.compare_digest(signature, expected):
        return Rejected(_IMPOSTOR)
    return Finished()


def _decode_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
