"""Credentials of SCRAM users (RFC 5802), which the server stores instead of passwords."""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from lograft.model.errors import InvalidInput
from lograft.model.seams import Randomness

ITERATIONS_MIN: Final = 4096
#: Every login repeats the computation, so there is an upper limit too.
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 26
_SALT_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(IntEnum):
    """The numbers are those of the metadata records."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def digest_size(self) -> int:
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    name: str
    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.mechanism.mechanism_name}, name={self.name!r})"


def credential_of(
    name: str,
    mechanism: ScramMechanism,
    *,
    salted_password: bytes,
    salt: bytes,
    iterations: int,
) -> ScramCredential:
    hash_name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        iterations=iterations,
    )


def make_salt(seed: bytes, size: int) -> bytes:
    """Returns a salt of digits and lower-case letters, as those of Kafka's tools, derived from the
    seed."""
    stream = hashlib.shake_256(seed).digest(4 * size)
    number = int.from_bytes(stream, "big")
    salt = bytearray()
    for _ in range(size):
        number, digit = divmod(number, len(_SALT_ALPHABET))
        salt.append(_SALT_ALPHABET[digit])
    return bytes(salt)


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def is_password_of(credential: ScramCredential, password: str) -> bool:
    """Blocks for some milliseconds. The time of the comparison does not depend on the password."""
    salted = salt_password(credential.mechanism, password, credential.salt, credential.iterations)
    computed = credential_of(
        credential.name,
        credential.mechanism,
        salted_password=salted,
        salt=credential.salt,
        iterations=credential.iterations,
    )
    return hmac.compare_digest(computed.stored_key, credential.stored_key)


def parse_credential(text: str, randomness: Randomness) -> ScramCredential:
    """Parses `SCRAM-SHA-256=[name=alice,password=secret]`, or the same with iterations, salt and
    saltedpassword (both base64) instead of the password. Error messages do not include the values,
    because they are secret."""
    mechanism, values = _parts(text)
    name = values.get("name", "")
    if not name:
        raise InvalidInput("--add-scram: specify the user's name: [name=alice,password=…]")
    iterations = _iterations(values.get("iterations"))
    if "salt" in values:
        salt = _base64("salt", values["salt"])
    else:
        salt = make_salt(randomness.bytes(64), SALT_BYTES)
    if "password" in values:
        salted_password = salt_password(mechanism, values["password"], salt, iterations)
    elif "saltedpassword" in values:
        if "salt" not in values:
            raise InvalidInput("--add-scram: saltedpassword also needs its salt")
        salted_password = _base64("saltedpassword", values["saltedpassword"])
    else:
        raise InvalidInput("--add-scram: specify either password or saltedpassword")
    return credential_of(
        name, mechanism, salted_password=salted_password, salt=salt, iterations=iterations
    )


def _parts(text: str) -> tuple[ScramMechanism, dict[str, str]]:
    name, equals, rest = text.partition("=")
    mechanisms = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}
    mechanism = mechanisms.get(name.strip())
    rest = rest.strip()
    if mechanism is None or not equals or not rest.startswith("[") or not rest.endswith("]"):
        raise InvalidInput(
            f"--add-scram: write MECHANISM=[name=…,password=…] with one of {', '.join(mechanisms)}"
        )
    values: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in ("name", "password", "salt", "iterations", "saltedpassword"):
            raise InvalidInput(
                "--add-scram: valid keys are name, password, salt, iterations and saltedpassword,"
                " written as key=value and separated by commas"
            )
        values[key] = value.strip().removeprefix('"').removesuffix('"')
    return mechanism, values


def _iterations(text: str | None) -> int:
    if text is None:
        return ITERATIONS_MIN
    if not text.isdecimal() or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise InvalidInput(
            f"--add-scram: iterations must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    return int(text)


def _base64(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidInput(f"--add-scram: {key} must be base64") from None
