"""Tokens without a signature, as Kafka's default handler accepts them for development.

Anyone can write such a token, so a listener accepts them only if
lograft.oauthbearer.unsecured.tokens.enable is set.
"""

from collections.abc import Mapping
from typing import Any

from lograft.model.settings.oauthbearer import UnsecuredTokens
from lograft.security.base64url import decode_base64url
from lograft.security.json_web_tokens import (
    TOKEN_LENGTH_MAX,
    InvalidToken,
    TokenRules,
    check_claims,
)
from lograft.security.oauthbearer import INSUFFICIENT_SCOPE, AcceptedToken, RejectedToken
from lograft.security.strict_json import parse_object


def check_unsecured_token(
    token: str, rules: UnsecuredTokens, *, now_ms: int
) -> AcceptedToken | RejectedToken:
    """Raises InvalidToken, except for a token without the required scopes."""
    parts = token.split(".")
    if len(token) > TOKEN_LENGTH_MAX or len(parts) != 3 or parts[2]:
        raise InvalidToken("the token is not an unsecured one: it has a signature")
    header, claims = (_parse(part) for part in parts[:2])
    if header.get("alg") != "none":
        raise InvalidToken("the token is not an unsecured one")
    accepted = check_claims(
        claims,
        TokenRules(
            issuer=None,
            audiences=None,
            subject_claim=rules.subject_claim,
            scope_claim=rules.scope_claim,
            clock_skew_ms=rules.clock_skew_ms,
        ),
        now_ms=now_ms,
    )
    missing = rules.required_scopes - accepted.scopes
    if missing:
        return RejectedToken(
            "the token lacks a required scope",
            INSUFFICIENT_SCOPE,
            " ".join(sorted(rules.required_scopes)),
            user=accepted.subject,
        )
    return AcceptedToken(accepted.subject, accepted.expires_at_ms)


def _parse(part: str) -> Mapping[str, Any]:
    try:
        return parse_object(decode_base64url(part))
    except ValueError:
        raise InvalidToken("the token is not base64url of JSON") from None
