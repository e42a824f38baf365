"""JSON Web Key Sets (RFC 7517): the public keys with which an identity provider signs tokens.

Only RSA and elliptic curve keys for signatures are used. Symmetric keys are ignored, so that the
text of a public key can never serve as the key of an HMAC.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from lograft.security.base64url import decode_base64url
from lograft.security.strict_json import parse_object

KEY_SET_BYTES_MAX: Final = 256 << 10
KEYS_MAX: Final = 100
#: Verification with a larger modulus or exponent takes too long.
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
_EXPONENT_MAX: Final = 1 << 32

_Curve: TypeAlias = ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1
_CURVES: Final[Mapping[str, Callable[[], _Curve]]] = {
    "P-256": ec.SECP256R1,
    "P-384": ec.SECP384R1,
    "P-521": ec.SECP521R1,
}


class Algorithm(NamedTuple):
    """A signature algorithm of RFC 7518."""

    #: RSA, or the name of a curve.
    key_type: str
    hash: Callable[[], hashes.SHA256 | hashes.SHA384 | hashes.SHA512]
    is_pss: bool = False


#: All that a token may use: "none" and those of symmetric keys are missing on purpose.
ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "RS256": Algorithm("RSA", hashes.SHA256),
    "RS384": Algorithm("RSA", hashes.SHA384),
    "RS512": Algorithm("RSA", hashes.SHA512),
    "PS256": Algorithm("RSA", hashes.SHA256, is_pss=True),
    "PS384": Algorithm("RSA", hashes.SHA384, is_pss=True),
    "PS512": Algorithm("RSA", hashes.SHA512, is_pss=True),
    "ES256": Algorithm("P-256", hashes.SHA256),
    "ES384": Algorithm("P-384", hashes.SHA384),
    "ES512": Algorithm("P-521", hashes.SHA512),
}


class VerificationKey(NamedTuple):
    key_id: str | None
    #: RSA, or the name of the curve.
    type: str
    #: The only algorithm of the key; None if it is not restricted.
    algorithm: str | None
    public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey

    def fits(self, algorithm: str) -> bool:
        return self.type == ALGORITHMS[algorithm].key_type and self.algorithm in (None, algorithm)

    def verifies(self, algorithm: str, signature: bytes, signed: bytes) -> bool:
        """Returns whether the signature is this key's. The key must fit the algorithm."""
        _, hash_of, is_pss = ALGORITHMS[algorithm]
        key, digest = self.public_key, hash_of()
        try:
            if isinstance(key, rsa.RSAPublicKey):
                scheme: padding.AsymmetricPadding = padding.PKCS1v15()
                if is_pss:
                    scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
                key.verify(signature, signed, scheme, digest)
            else:
                size = (key.curve.key_size + 7) // 8
                if len(signature) != 2 * size:
                    return False
                r, s = (int.from_bytes(part) for part in (signature[:size], signature[size:]))
                key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        except InvalidSignature:
            return False
        return True


class KeySet(NamedTuple):
    keys: Sequence[VerificationKey]

    def has(self, key_id: str) -> bool:
        return any(key.key_id == key_id for key in self.keys)

    def find(self, algorithm: str, key_id: str | None) -> list[VerificationKey]:
        """Returns the keys that may have signed a token. Without a key id, exactly one key must
        match."""
        fitting = [key for key in self.keys if key.fits(algorithm)]
        if key_id is None:
            return fitting if len(fitting) == 1 else []
        return [key for key in fitting if key.key_id == key_id]


def parse_key_set(data: bytes) -> KeySet:
    """Raises ValueError, whose message does not include the data, if no key can be used. Keys of
    other types and for other purposes are skipped, as RFC 7517 requires."""
    if len(data) > KEY_SET_BYTES_MAX:
        raise ValueError(f"the key set has more than {KEY_SET_BYTES_MAX} bytes")
    entries = parse_object(data).get("keys")
    if not isinstance(entries, list):
        raise ValueError("the key set has no list of keys")
    if len(entries) > KEYS_MAX:
        raise ValueError(f"the key set has more than {KEYS_MAX} keys")
    keys = [key for entry in entries if (key := _parse_key(entry)) is not None]
    if not keys:
        raise ValueError("the key set has no RSA or elliptic curve key for signatures")
    return KeySet(tuple(keys))


def _parse_key(entry: Any) -> VerificationKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        return None
    try:
        match entry.get("kty"):
            case "RSA":
                return VerificationKey(key_id, "RSA", algorithm, _rsa_key(entry))
            case "EC":
                curve = str(entry.get("crv"))
                return VerificationKey(key_id, curve, algorithm, _curve_key(entry, curve))
            case _:
                return None
    except (KeyError, ValueError):
        return None


def _rsa_key(entry: Mapping[str, Any]) -> rsa.RSAPublicKey:
    modulus, exponent = (int.from_bytes(decode_base64url(entry[name])) for name in ("n", "e"))
    if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX or exponent > _EXPONENT_MAX:
        raise ValueError("the size of the key is not supported")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _curve_key(entry: Mapping[str, Any], curve: str) -> ec.EllipticCurvePublicKey:
    x, y = (int.from_bytes(decode_base64url(entry[name])) for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, _CURVES[curve]()).public_key()
