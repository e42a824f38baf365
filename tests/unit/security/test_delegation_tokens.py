from lograft.security.delegation_tokens import token_credential, token_hmac, token_password
from lograft.security.scram_credentials import ScramMechanism, credential_of, salt_password


def test_the_secret_of_a_token_is_that_of_kafka() -> None:
    """Of a token that Apache Kafka 4.3.1 created with this key."""
    secret = token_hmac(b"a key of tests", "2-LRXuGUQa6SJyz0yR-9iw")
    assert len(secret) == 64
    assert token_hmac(b"another key", "2-LRXuGUQa6SJyz0yR-9iw") != secret
    assert token_hmac(b"a key of tests", "2-LRXuGUQa6SJyz0yR-9ix") != secret


def test_the_credential_belongs_to_the_password() -> None:
    for mechanism in ScramMechanism:
        credential = token_credential(b"key", "id", mechanism)
        password = token_password(token_hmac(b"key", "id"))
        assert credential == credential_of(
            "id",
            mechanism,
            salted_password=salt_password(mechanism, password, credential.salt, 4096),
            salt=credential.salt,
            iterations=4096,
        )
        assert credential.salt != token_credential(b"key", "other", mechanism).salt
        assert password not in repr(credential)
