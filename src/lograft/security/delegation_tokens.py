"""The secrets of delegation tokens, computed as in Kafka, so that both accept each other's tokens.

The HMAC of a token is that of its id with the key of the cluster; it is not stored. Its base64 is
the password with which a client logs in through SCRAM, with the id of the token as user name.
"""

import base64
import hmac
from functools import lru_cache
from typing import Final

from lograft.security.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of,
    make_salt,
    salt_password,
)

#: Tokens whose secrets are cached, because computing them takes a long time.
_CACHED_TOKENS: Final = 4096


@lru_cache(maxsize=_CACHED_TOKENS)
def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    """Returns the password for the HMAC of a token."""
    return base64.b64encode(secret).decode()


@lru_cache(maxsize=_CACHED_TOKENS)
def token_credential(
    secret_key: bytes, token_id: str, mechanism: ScramMechanism
) -> ScramCredential:
    """Returns the SCRAM credential against which a token login is verified."""
    secret = token_hmac(secret_key, token_id)
    salt = make_salt(hmac.digest(secret, mechanism.mechanism_name.encode(), "sha512"), SALT_BYTES)
    return credential_of(
        token_id,
        mechanism,
        salted_password=salt_password(mechanism, token_password(secret), salt, ITERATIONS_MIN),
        salt=salt,
        iterations=ITERATIONS_MIN,
    )
