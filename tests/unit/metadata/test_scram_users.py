from collections.abc import Callable

import pytest

from lograft.metadata.image import MetadataImage
from lograft.metadata.scram_users import alter_scram_credentials
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode
from lograft.security.scram_credentials import ScramMechanism, salt_password
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.unit.metadata.conftest import append

SHA_256, SHA_512 = ScramMechanism
MakeImage = Callable[..., MetadataImage]
Result = ControllerResult[AlterUserScramCredentialsResponse]


def upsertion(name: str = "alice", mechanism: int = SHA_256, **changes: object) -> object:
    size = 64 if mechanism == SHA_512 else 32
    values = {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * size} | changes
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **values)  # type: ignore[arg-type]


def deletion(name: str = "alice", mechanism: int = SHA_256) -> object:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(image: MetadataImage, *changes: object) -> Result:
    return alter_scram_credentials(
        image,
        AlterUserScramCredentialsRequest(
            deletions=[item for item in changes if isinstance(item, ScramCredentialDeletion)],
            upsertions=[item for item in changes if isinstance(item, ScramCredentialUpsertion)],
        ),
    )


def outcomes(result: Result) -> dict[str, ErrorCode]:
    return {user.user: ErrorCode(user.error_code) for user in result.reply.results}


def test_credentials_are_added_replaced_and_removed(cluster: MakeImage) -> None:
    image = cluster(1)
    first = alter(image, upsertion(), upsertion(mechanism=SHA_512), upsertion("bob"))
    assert outcomes(first) == {"alice": ErrorCode.NONE, "bob": ErrorCode.NONE}
    append(image, first.records)
    assert set(image.scram) == {(SHA_256, "alice"), (SHA_512, "alice"), (SHA_256, "bob")}

    append(image, alter(image, upsertion(iterations=8192), deletion("bob")).records)
    assert set(image.scram) == {(SHA_256, "alice"), (SHA_512, "alice")}
    assert image.scram[SHA_256, "alice"].iterations == 8192


def test_the_salted_password_is_not_stored(cluster: MakeImage) -> None:
    secret = salt_password(SHA_256, "pencil", b"salt", 4096)
    (record,) = alter(cluster(1), upsertion(salted_password=secret)).records
    assert secret not in repr(record).encode()
    assert secret not in vars(record).values() if hasattr(record, "__dict__") else True
    values = [getattr(record, field.name) for field in type(record).FIELDS]
    assert secret not in [value for value in values if isinstance(value, bytes)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b"s" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b"p" * 64), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a" * 256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\0b"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion(mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion(), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_invalid_changes_are_rejected(cluster: MakeImage, change: object, code: ErrorCode) -> None:
    result = alter(cluster(1), change)
    assert list(outcomes(result).values()) == [code]
    assert result.records == ()


@pytest.mark.parametrize("other", [upsertion(iterations=5000), deletion()])
def test_a_credential_is_changed_once_per_request(cluster: MakeImage, other: object) -> None:
    result = alter(cluster(1), upsertion(), other, upsertion("bob"))
    assert outcomes(result) == {
        "alice": ErrorCode.RESOURCE_NOT_FOUND
        if isinstance(other, ScramCredentialDeletion)
        else ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.NONE,
    }
    assert len(result.records) == 1


def test_an_invalid_change_of_a_user_prevents_the_others(cluster: MakeImage) -> None:
    result = alter(cluster(1), upsertion(), upsertion(mechanism=SHA_512, iterations=1))
    assert outcomes(result) == {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert result.records == ()


def test_old_metadata_versions_have_no_users(cluster: MakeImage) -> None:
    image = cluster(1)
    image.features["metadata.version"] = 10
    assert outcomes(alter(image, upsertion())) == {"alice": ErrorCode.UNSUPPORTED_VERSION}
