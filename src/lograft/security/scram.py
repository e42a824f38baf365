"""The SCRAM mechanisms of a server (RFC 5802 and RFC 7677), without channel binding.

A client cannot find out whether a user exists: an unknown user gets a challenge too, whose salt
depends on the name and on stored credentials, and fails only when the proof is checked.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from lograft.security.sasl import (
    MALFORMED,
    OTHER_AUTHORIZATION_ID,
    Challenge,
    Failure,
    Step,
    Success,
)
from lograft.security.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    make_salt,
)

NONCE_BYTES: Final = 24
#: Longer messages are rejected before they are parsed.
MESSAGE_BYTES_MAX: Final = 16 << 10

_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_VALUE: Final = r"[^\x00,]+"
_FIRST: Final = re.compile(
    rf"(?P<header>(?P<binding>n|y|p={_VALUE}),(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>(?P<mandatory>m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?:,[A-Za-z]+={_VALUE})*?),p=(?P<proof>[A-Za-z0-9+/=]+)"
)

#: Returns the credential of a user, or None.
FindCredential: TypeAlias = Callable[[str], ScramCredential | None]


class TokenLogin(NamedTuple):
    """The SCRAM credential against which a token login is verified, and the resulting session."""

    credential: ScramCredential
    #: The name of the owner, without the type of the principal.
    owner: str
    expires_at_ms: int


#: Returns the delegation token with this id, or None.
FindToken: TypeAlias = Callable[[str], TokenLogin | None]


@dataclass(frozen=True, slots=True)
class _FirstMessage:
    header: bytes
    bare: str
    user: str
    nonce: str
    authorization_id: str
    extensions: Mapping[str, str]

    @property
    def is_token(self) -> bool:
        """The client logs in with a delegation token (KIP-48)."""
        return self.extensions.get("tokenauth", "").lower() == "true"


class ScramExchange:
    """One login. `nonce` is random."""

    __slots__ = (
        "_credential",
        "_find",
        "_find_token",
        "_first",
        "_is_known",
        "_mechanism",
        "_nonce",
        "_sent",
        "_token",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: FindCredential,
        find_template: Callable[[], ScramCredential | None],
        *,
        nonce: bytes,
        find_token: FindToken = lambda _: None,
    ) -> None:
        """`find_template` returns any stored credential of the mechanism, always the same one, or
        None if there is none: the challenges for unknown users are derived from it."""
        self._mechanism = mechanism
        self._find = (find_credential, find_template)
        self._find_token = find_token
        #: The delegation token whose id is the user name of the client.
        self._token: TokenLogin | None = None
        self._nonce = base64.b64encode(nonce).decode()
        self._first: _FirstMessage | None = None
        self._sent = ""
        self._credential: ScramCredential
        self._is_known = False

    def step(self, message: bytes) -> Step:
        if len(message) > MESSAGE_BYTES_MAX:
            return Failure(reason="the message is too long")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return Failure(reason=MALFORMED)
        return self._begin(text) if self._first is None else self._finish(text, self._first)

    def _begin(self, text: str) -> Step:
        first = _parse_first(text)
        if isinstance(first, Failure):
            return first
        if first.authorization_id not in ("", first.user):
            return Failure(
                reason="the authorization id is not the user name",
                user=first.user,
                message=OTHER_AUTHORIZATION_ID,
            )
        find_credential, find_template = self._find
        # Both are computed in both cases, so that the time does not depend on the user.
        stand_in = _stand_in(first.user, self._mechanism, find_template())
        if first.is_token:
            self._token = self._find_token(first.user)
            found = None if self._token is None else self._token.credential
        else:
            found = find_credential(first.user)
        self._is_known = found is not None
        self._credential = credential = stand_in if found is None else found
        self._first = first
        salt = base64.b64encode(credential.salt).decode()
        self._nonce = first.nonce + self._nonce
        self._sent = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Challenge(self._sent.encode())

    def _finish(self, text: str, first: _FirstMessage) -> Step:
        match = _FINAL.fullmatch(text)
        if match is None:
            return Failure(reason=MALFORMED, user=first.user)
        header, proof = _decode_base64(match["header"]), _decode_base64(match["proof"])
        if header != first.header:
            return Failure(reason="the channel binding has changed", user=first.user)
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            return Failure(reason="the nonce is wrong", user=first.user)
        credential, hash_name = self._credential, self._mechanism.hash_name
        signed = f"{first.bare},{self._sent},{match['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, signed, hash_name)
        server_signature = hmac.digest(credential.server_key, signed, hash_name)
        if proof is None or len(proof) != len(signature):
            return Failure(reason=MALFORMED, user=first.user)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key) or not self._is_known:
            kind = "delegation token" if first.is_token else "user"
            reason = "wrong password" if self._is_known else f"unknown {kind}"
            return Failure(reason=reason, user=first.user)
        final = b"v=" + base64.b64encode(server_signature)
        token = self._token
        if token is None:
            return Success(message=final, user=first.user)
        return Success(
            message=final, user=token.owner, expires_at_ms=token.expires_at_ms, token_id=first.user
        )


def _parse_first(text: str) -> _FirstMessage | Failure:
    match = _FIRST.fullmatch(text)
    if match is None:
        return Failure(reason=MALFORMED)
    if match["binding"].startswith("p="):
        return Failure(reason="the client requires channel binding, which is not supported")
    if match["mandatory"] is not None:
        return Failure(reason="the client requires an unknown extension")
    extensions = dict(part.partition("=")[::2] for part in match["extensions"].split(",") if part)
    return _FirstMessage(
        match["header"].encode(),
        match["bare"],
        _unescape(match["user"]),
        match["nonce"],
        _unescape(match["authorization_id"] or ""),
        extensions,
    )


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _stand_in(
    user: str, mechanism: ScramMechanism, template: ScramCredential | None
) -> ScramCredential:
    """Returns a credential for an unknown user, which no proof matches. Repeated logins get the
    same salt, on every node of the cluster. Only who knows the secrets of the template can compute
    it."""
    hash_name = mechanism.hash_name
    secret = b"" if template is None else template.server_key + template.stored_key
    seed = hmac.digest(b"unknown user" + secret, user.encode(), hash_name)
    size = SALT_BYTES if template is None else len(template.salt)
    return ScramCredential(
        name=user,
        mechanism=mechanism,
        salt=make_salt(seed, size),
        stored_key=hmac.digest(seed, b"stored key", hash_name),
        server_key=hmac.digest(seed, b"server key", hash_name),
        iterations=ITERATIONS_MIN if template is None else template.iterations,
    )
