"""Tokens that are accepted, and everything that must be rejected: the checks fail closed."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from lograft.security.json_web_keys import ALGORITHMS, parse_key_set
from lograft.security.json_web_tokens import (
    TOKEN_LENGTH_MAX,
    InvalidToken,
    TokenRules,
    UnknownKey,
    VerifiedToken,
    verify_token,
)
from tests.support.identity_provider import (
    AUDIENCE,
    CURVES,
    ISSUER,
    base64url,
    claims,
    curve_key,
    key_set,
    part,
    public_entry,
    rsa_key,
    sign,
    token,
)

NOW_S = 1_700_000_000
RULES = TokenRules(issuer=ISSUER, audiences=frozenset({AUDIENCE}), clock_skew_ms=30_000)
KEYS = parse_key_set(
    key_set(
        public_entry(rsa_key(), kid="first"),
        *(public_entry(curve_key(curve), kid=curve) for curve in CURVES),
    )
)


def verify(text: str, rules: TokenRules = RULES) -> VerifiedToken:
    return verify_token(text, KEYS, rules, now_ms=NOW_S * 1000)


def good(**others: Any) -> str:
    return token(claims(NOW_S, **others))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_every_algorithm(algorithm: str) -> None:
    kind = ALGORITHMS[algorithm].key_type
    key, key_id = (rsa_key(), "first") if kind == "RSA" else (curve_key(kind), kind)
    header = {"alg": algorithm, "kid": key_id, "typ": "JWT"}
    text = token(claims(NOW_S, scope="read write"), key=key, algorithm=algorithm, header=header)
    assert verify(text) == VerifiedToken(
        subject="alice",
        scopes=frozenset({"read", "write"}),
        expires_at_ms=(NOW_S + 600) * 1000,
    )
    changed = text[:-8] + ("A" if text[-8] != "A" else "B") + text[-7:]
    with pytest.raises(InvalidToken, match="signature"):
        verify(changed)


def resigned(header: dict[str, Any], body: Any = None) -> str:
    """Signed with the right key, whatever the header says."""
    return token(body or claims(NOW_S), header={"alg": "RS256", "kid": "first"} | header)


PUBLIC_PEM = (
    rsa_key()
    .public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
)


def with_hmac(algorithm: str, secret: bytes) -> str:
    signed = f"{part({'alg': algorithm, 'kid': 'first'})}.{part(claims(NOW_S))}"
    return f"{signed}.{base64url(hmac.digest(secret, signed.encode(), 'sha256'))}"


def with_own_key() -> str:
    """The header brings the key that verifies the token."""
    own = public_entry(rsa_key(1), kid="first")
    header = {"alg": "RS256", "kid": "first", "jwk": own, "jku": "https://evil.example/jwks"}
    return token(claims(NOW_S), key=rsa_key(1), header=header)


def duplicate(member: str) -> bytes:
    return f'{{"sub":"eve",{member},{json.dumps(claims(NOW_S))[1:]}'.encode()


REJECTED = {
    "no signature": f"{part({'alg': 'none'})}.{part(claims(NOW_S))}.",
    "alg none with a signature": resigned({"alg": "none"}),
    "alg NONE": f"{part({'alg': 'NONE', 'kid': 'first'})}.{part(claims(NOW_S))}.",
    "no alg": token(claims(NOW_S), header={"kid": "first"}),
    "alg is not a text": resigned({"alg": ["RS256"]}),
    "HMAC with the public key as PEM": with_hmac("HS256", PUBLIC_PEM),
    "HMAC with the modulus": with_hmac("HS256", public_entry(rsa_key())["n"].encode()),
    "HMAC with an empty key": with_hmac("HS256", b""),
    "RSA signature declared as PSS": resigned({"alg": "PS256"}),
    "RSA signature declared as ES256": resigned({"alg": "ES256"}),
    "another hash": resigned({"alg": "RS512"}),
    "key of another type": token(claims(NOW_S), header={"alg": "RS256", "kid": "P-256"}),
    "another key": token(claims(NOW_S), key=rsa_key(1)),
    "unknown kid": resigned({"kid": "second"}),
    "kid is a number": resigned({"kid": 1}),
    "kid is too long": resigned({"kid": "k" * 300}),
    "key in the header": with_own_key(),
    "critical extension": resigned({"crit": ["exp"]}),
    "compressed": resigned({"zip": "DEF"}),
    "unencoded payload": resigned({"b64": False}),
    "expired": good(iat=NOW_S - 99, exp=NOW_S - 31),
    "exp is a text": good(exp=str(NOW_S + 60)),
    "exp is a boolean": good(exp=True),
    "exp is not finite": token(json.dumps(claims(NOW_S, exp="E")).replace('"E"', "1e999").encode()),
    "exp is NaN": token(json.dumps(claims(NOW_S, exp="E")).replace('"E"', "NaN").encode()),
    "exp is null": token(json.dumps(claims(NOW_S, exp="E")).replace('"E"', "null").encode()),
    "exp is beyond all dates": good(exp=10**40),
    "exp has too many digits": token(
        json.dumps(claims(NOW_S, exp="E")).replace('"E"', "9" * 5000).encode()
    ),
    "no exp": good(exp=None),
    "not valid yet": good(nbf=NOW_S + 31),
    "nbf is a text": good(nbf="now"),
    "expires before it is issued": good(iat=NOW_S + 900),
    "another issuer": good(iss="https://evil.example"),
    "no issuer": good(iss=None),
    "issuers in a list": good(iss=[ISSUER]),
    "another audience": good(audience="billing"),
    "no audience": good(aud=None),
    "audience is a number": good(aud=7),
    "audience with other types": good(aud=[AUDIENCE, 7]),
    "no subject": good(sub=None),
    "empty subject": good(sub=" "),
    "subject is a number": good(sub=7),
    "subject is too long": good(sub="a" * 2000),
    "subject is not Unicode": token(
        json.dumps(claims(NOW_S)).replace('"alice"', '"\\ud800"').encode()
    ),
    "scope is a number": good(scope=7),
    "duplicate claim": token(duplicate('"x":1')),
    "duplicate claim in an object": token(
        json.dumps(claims(NOW_S, x={})).replace("{}", '{"a":1,"a":2}').encode()
    ),
    "duplicate header": token(claims(NOW_S), header=b'{"alg":"none","alg":"RS256","kid":"first"}'),
    "deep claims": token(
        json.dumps(claims(NOW_S, x="X")).replace('"X"', "[" * 2000 + "]" * 2000).encode()
    ),
    "many arrays": token(
        json.dumps(claims(NOW_S, x="X")).replace('"X"', f"[{'[],' * 600}1]").encode()
    ),
    "claims are a list": token(b"[]"),
    "claims are not JSON": token(b"{'sub':'alice'}"),
    "claims are not UTF-8": token(b'{"sub":"\xff"}'),
    "two parts": good().rpartition(".")[0],
    "four parts": f"{good()}.",
    "encrypted": "a.b.c.d.e",
    "padding": good() + "=",
    "standard base64": good().replace("_", "/").replace("-", "+") + "+",
    "empty": "",
    "huge": good(x="x" * TOKEN_LENGTH_MAX),
}


@pytest.mark.parametrize("name", REJECTED)
def test_tokens_that_are_rejected(name: str) -> None:
    with pytest.raises(InvalidToken) as raised:
        verify(REJECTED[name])
    # The reason is logged: nothing that the client wrote may be in it.
    for written in ("alice", "eve", "evil", "billing", "second"):
        assert written not in str(raised.value)


def test_the_signature_of_other_claims_does_not_help() -> None:
    header, _, signature = good().split(".")
    with pytest.raises(InvalidToken, match="signature of the token is invalid"):
        verify(f"{header}.{part(claims(NOW_S, sub='root'))}.{signature}")


def test_an_unknown_key_is_reported_so_that_the_keys_are_refreshed() -> None:
    with pytest.raises(UnknownKey) as raised:
        verify(REJECTED["unknown kid"])
    assert raised.value.key_id == "second"


@pytest.mark.parametrize(
    "others",
    [
        {"iat": NOW_S - 99, "exp": NOW_S - 29},
        {"nbf": NOW_S + 29},
        {"exp": NOW_S + 0.5},
        {"iat": None},
    ],
)
def test_clocks_may_differ_a_little(others: Any) -> None:
    assert verify(good(**others)).subject == "alice"


def test_claims_with_other_names() -> None:
    rules = TokenRules(issuer=None, audiences=None, subject_claim="client_id", scope_claim="scp")
    text = good(iss=None, aud=None, client_id=" svc ", scp=["a b", "c"])
    verified = verify(text, rules)
    assert (verified.subject, verified.scopes) == ("svc", frozenset({"a b", "c"}))


def test_a_token_without_a_key_id_needs_exactly_one_fitting_key() -> None:
    text = token(claims(NOW_S), header={"alg": "RS256"})
    assert verify(text).subject == "alice"
    two = parse_key_set(
        key_set(public_entry(rsa_key(), kid="first"), public_entry(rsa_key(1), kid="second"))
    )
    with pytest.raises(InvalidToken, match="no key id"):
        verify_token(text, two, RULES, now_ms=NOW_S * 1000)


def test_a_key_is_used_for_its_own_algorithm_only() -> None:
    keys = parse_key_set(key_set(public_entry(rsa_key(), kid="first", alg="PS256")))
    with pytest.raises(InvalidToken, match="does not fit"):
        verify_token(good(), keys, RULES, now_ms=NOW_S * 1000)
    signed = good().rpartition(".")[0].encode()
    assert KEYS.keys[0].verifies("RS256", sign(rsa_key(), "RS256", signed), signed)
    assert hashlib.sha256(signed).digest() != sign(rsa_key(), "RS256", signed)
