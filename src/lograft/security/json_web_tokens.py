"""Verifies JSON Web Tokens (RFC 7519), signed and compact, as in OAUTHBEARER.

Anything not provably valid is rejected. The key is chosen by the configured key set
alone: a key, certificate or URL in the header of a token is never used. PyJWT is maintained well,
but it needs `cryptography` too, and the checks that it lacks (duplicate members, size and depth,
keys that do not fit the algorithm) would take as many lines as these.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lograft.security.base64url import decode_base64url
from lograft.security.json_web_keys import ALGORITHMS, KeySet
from lograft.security.strict_json import parse_object

TOKEN_LENGTH_MAX: Final = 32 << 10
SUBJECT_LENGTH_MAX: Final = 1024
KEY_ID_LENGTH_MAX: Final = 256


class InvalidToken(ValueError):
    """The reason why a token is rejected, without parts of the token."""


class UnknownKey(InvalidToken):
    """The key set has no such key: it may be out of date."""

    def __init__(self, key_id: str) -> None:
        super().__init__("the token is signed with an unknown key")
        self.key_id = key_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must satisfy besides its signature."""

    #: None: any issuer.
    issuer: str | None
    #: One of them must be in the token; None: any audience.
    audiences: frozenset[str] | None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    subject: str
    scopes: frozenset[str]
    expires_at_ms: int


def verify_token(token: str, keys: KeySet, rules: TokenRules, *, now_ms: int) -> VerifiedToken:
    """Raises InvalidToken."""
    if len(token) > TOKEN_LENGTH_MAX:
        raise InvalidToken(f"the token has more than {TOKEN_LENGTH_MAX} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("the token does not have the three parts of a signed token")
    signed, _, _ = token.rpartition(".")
    header, signature = _parse_part(parts[0], "header"), _decode(parts[2], "signature")
    _check_signature(header, signature, signed.encode(), keys)
    return check_claims(_parse_part(parts[1], "claims"), rules, now_ms=now_ms)


def _check_signature(
    header: Mapping[str, Any], signature: bytes, signed: bytes, keys: KeySet
) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken("the signature algorithm of the token is not allowed")
    if "crit" in header or "zip" in header or header.get("b64") is not None:
        raise InvalidToken("the header of the token requires an unknown extension")
    if not isinstance(key_id, str | None) or len(key_id or "") > KEY_ID_LENGTH_MAX:
        raise InvalidToken("the key id of the token is invalid")
    candidates = keys.find(algorithm, key_id)
    if not candidates:
        if key_id is None:
            raise InvalidToken(
                "the token has no key id, so exactly one key must match, but none or several do"
            )
        if not keys.has(key_id):
            raise UnknownKey(key_id)
        raise InvalidToken("the key of the token does not fit its signature algorithm")
    if not any(key.verifies(algorithm, signature, signed) for key in candidates):
        raise InvalidToken("the signature of the token is invalid")


def check_claims(claims: Mapping[str, Any], rules: TokenRules, *, now_ms: int) -> VerifiedToken:
    """Raises InvalidToken."""
    expires_at_ms = _time_ms(claims, "exp")
    if expires_at_ms is None:
        raise InvalidToken("the token has no exp claim")
    if now_ms - rules.clock_skew_ms >= expires_at_ms:
        raise InvalidToken("the token has expired")
    for name in ("nbf", "iat"):
        from_ms = _time_ms(claims, name)
        if from_ms is None:
            continue
        if name == "nbf" and now_ms + rules.clock_skew_ms < from_ms:
            raise InvalidToken("the token is not valid yet")
        if from_ms > expires_at_ms:
            raise InvalidToken(f"the token expires before its {name} claim")
    issuer = claims.get("iss")
    if rules.issuer is not None and issuer != rules.issuer:
        raise InvalidToken("the issuer of the token is not the expected one")
    if rules.audiences is not None and rules.audiences.isdisjoint(_texts(claims, "aud")):
        raise InvalidToken("the token is for another audience")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the token has no {rules.subject_claim} claim")
    subject = subject.strip()
    if len(subject) > SUBJECT_LENGTH_MAX or not _is_encodable(subject):
        raise InvalidToken(f"the {rules.subject_claim} claim of the token is invalid")
    scopes = _texts(claims, rules.scope_claim, separated=True)
    return VerifiedToken(
        subject=subject, scopes=frozenset(scopes), expires_at_ms=int(expires_at_ms)
    )


def _time_ms(claims: Mapping[str, Any], name: str) -> float | None:
    """Returns the time in milliseconds; the claim is in seconds and may have a fraction."""
    seconds = claims.get(name)
    if seconds is None and name not in claims:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidToken(f"the {name} claim of the token is not a number")
    # More than any date that Kafka's 64 bits of milliseconds can express.
    if not math.isfinite(seconds) or not 0 <= seconds < 1 << 50:
        raise InvalidToken(f"the {name} claim of the token is out of range")
    return seconds * 1000


def _texts(claims: Mapping[str, Any], name: str, *, separated: bool = False) -> list[str]:
    """Returns the values of a claim that is a string or a list of strings. `separated`: a string
    may have several values with spaces in between."""
    value = claims.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        return value.split() if separated else [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise InvalidToken(f"the {name} claim of the token is neither a string nor a list of strings")


def _parse_part(text: str, name: str) -> dict[str, Any]:
    try:
        return parse_object(_decode(text, name))
    except InvalidToken:
        raise
    except ValueError:
        raise InvalidToken(f"the {name} of the token is not a valid JSON object") from None


def _decode(text: str, name: str) -> bytes:
    try:
        return decode_base64url(text)
    except ValueError:
        raise InvalidToken(f"the {name} of the token is not base64url") from None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
