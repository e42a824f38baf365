"""An identity provider: its keys as a JSON Web Key Set, and tokens that it signs."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from lograft.security.json_web_keys import ALGORITHMS

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "lograft"
CURVES: Final[Mapping[str, Callable[[], ec.EllipticCurve]]] = {
    "P-256": ec.SECP256R1,
    "P-384": ec.SECP384R1,
    "P-521": ec.SECP521R1,
}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Mapping[str, Any] | bytes) -> str:
    return base64url(value if isinstance(value, bytes) else json.dumps(value).encode())


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The keys with different numbers are different; creating one takes a while."""
    return rsa.generate_private_key(65537, bits)


@cache
def curve_key(curve: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(CURVES[curve]())


def public_entry(key: Any, **members: Any) -> dict[str, Any]:
    """The member of a key set."""
    numbers = key.public_key().public_numbers()
    if isinstance(key, rsa.RSAPrivateKey):
        found = {"kty": "RSA", "n": _integer(numbers.n), "e": _integer(numbers.e)}
    else:
        size = (key.curve.key_size + 7) // 8
        name = next(name for name, kind in CURVES.items() if kind().name == key.curve.name)
        found = {"kty": "EC", "crv": name, "x": _integer(numbers.x, size)}
        found["y"] = _integer(numbers.y, size)
    return found | members


def _integer(value: int, size: int = 0) -> str:
    return base64url(value.to_bytes(max(size, (value.bit_length() + 7) // 8)))


def key_set(*entries: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


def sign(key: Any, algorithm: str, signed: bytes) -> bytes:
    _, hash_of, is_pss = ALGORITHMS[algorithm]
    digest = hash_of()
    if isinstance(key, rsa.RSAPrivateKey):
        pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
        return key.sign(signed, pss if is_pss else padding.PKCS1v15(), digest)
    size = (key.curve.key_size + 7) // 8
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(digest)))
    return r.to_bytes(size) + s.to_bytes(size)


def token(
    claims: Mapping[str, Any] | bytes,
    *,
    key: Any = None,
    algorithm: str = "RS256",
    header: Mapping[str, Any] | bytes | None = None,
) -> str:
    if header is None:
        header = {"alg": algorithm, "kid": "first"}
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{base64url(sign(key or rsa_key(), algorithm, signed.encode()))}"


def claims(now_s: float, *, audience: str | Sequence[str] = AUDIENCE, **others: Any) -> Any:
    """`others` replace the usual claims; None removes one."""
    usual = {"iss": ISSUER, "aud": audience, "sub": "alice", "iat": now_s, "exp": now_s + 600}
    return {name: value for name, value in {**usual, **others}.items() if value is not None}
