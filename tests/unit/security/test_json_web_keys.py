"""Key sets: what is skipped, and what is rejected as a whole."""

import json
from typing import Any

import pytest

from lograft.security.json_web_keys import (
    KEY_SET_BYTES_MAX,
    KEYS_MAX,
    parse_key_set,
)
from tests.support.identity_provider import (
    base64url,
    curve_key,
    key_set,
    public_entry,
    rsa_key,
)

RSA = public_entry(rsa_key(), kid="r")


def test_keys_of_a_set() -> None:
    keys = parse_key_set(key_set(RSA, public_entry(curve_key("P-384"), kid="c", use="sig")))
    assert [(key.key_id, key.type) for key in keys.keys] == [("r", "RSA"), ("c", "P-384")]
    assert keys.has("c")
    assert not keys.has("x")


SKIPPED: dict[str, Any] = {
    "symmetric": {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
    "for encryption": RSA | {"use": "enc"},
    "not for verification": RSA | {"key_ops": ["encrypt"]},
    "kid is a number": RSA | {"kid": 7},
    "short RSA": public_entry(rsa_key(0, 1024)),
    "huge RSA": RSA | {"n": base64url(b"\xff" * 2000)},
    "huge exponent": RSA | {"e": base64url(b"\xff" * 200)},
    "even exponent": RSA | {"e": base64url(b"\x02")},
    "no modulus": {"kty": "RSA", "e": "AQAB"},
    "modulus is a number": RSA | {"n": 7},
    "point beside the curve": public_entry(curve_key("P-256")) | {"y": "AQ"},
    "unknown curve": public_entry(curve_key("P-256")) | {"crv": "secp256k1"},
    "no type": {"n": RSA["n"], "e": RSA["e"]},
    "not an object": 7,
}


@pytest.mark.parametrize("name", SKIPPED)
def test_keys_that_are_skipped(name: str) -> None:
    assert len(parse_key_set(key_set(SKIPPED[name], RSA)).keys) == 1
    with pytest.raises(ValueError, match="no RSA or elliptic curve key"):
        parse_key_set(key_set(SKIPPED[name]))


REJECTED = {
    "huge": b'{"keys":["' + b"x" * KEY_SET_BYTES_MAX + b'"]}',
    "many keys": json.dumps({"keys": ["x"] * (KEYS_MAX + 1)}).encode(),
    "deep": b'{"keys":' + b"[" * 100_000,
    "no keys": b"{}",
    "keys is an object": b'{"keys":{}}',
    "no key": b'{"keys":[]}',
    "duplicate member": b'{"keys":[],"keys":[]}',
    "a page": b"<html>c4n4ry</html>",
    "a list": b"[]",
    "not UTF-8": b"\xff\xfe",
    "empty": b"",
}


@pytest.mark.parametrize("name", REJECTED)
def test_key_sets_that_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"key set|JSON") as raised:
        parse_key_set(REJECTED[name])
    assert "c4n4ry" not in str(raised.value)
