import pytest

from lograft.model.errors import InvalidInput
from lograft.runtime.randomness import SystemRandomness
from lograft.security.scram_credentials import (
    ScramMechanism,
    credential_of,
    parse_credential,
    salt_password,
)


def test_keys_match_rfc_7677() -> None:
    """The user "user" with the password "pencil", as in the RFC's example."""
    import base64
    import hashlib
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kind = ScramMechanism.SCRAM_SHA_256
    password = salt_password(kind, "pencil", salt, 4096)
    user = credential_of("user", kind, salted_password=password, salt=salt, iterations=4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    attributes = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        f"c=biws,r={nonce}"
    ).encode()
    server_signature = hmac.digest(user.server_key, attributes, "sha256")
    assert base64.b64encode(server_signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(user.stored_key, attributes, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == user.stored_key


def test_each_password_gets_a_random_salt() -> None:
    text = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    first, second = (parse_credential(text, SystemRandomness()) for _ in range(2))
    assert (first.name, first.iterations, first.mechanism) == ("alice", 4096, 1)
    assert first.salt != second.salt
    assert "secret" not in repr(first)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SCRAM-SHA-1=[name=a,password=topsecret]", "SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256", "MECHANISM="),
        ("SCRAM-SHA-256=name=a,password=topsecret", "MECHANISM="),
        ("SCRAM-SHA-256=[password=topsecret]", "name"),
        ("SCRAM-SHA-256=[name=a]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=topsecret]", "needs its salt"),
        ("SCRAM-SHA-256=[name=a,salt=eA==,saltedpassword=top-secret]", "must be base64"),
        ("SCRAM-SHA-256=[name=a,password=topsecret,foo=bar]", "valid keys are"),
        ("SCRAM-SHA-256=[name=a,password=topsecret,iterations=3]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=topsecret,iterations=20000]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=topsecret,iterations=x]", "4096 to 16384"),
    ],
)
def test_error_messages_do_not_include_the_secret(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as error:
        parse_credential(text, SystemRandomness())
    assert "secret" not in str(error.value).replace("password=…", "")
