"""The controller's decisions about SCRAM users: credentials are added, replaced and removed.

A request may change several users; the changes of one user are applied together or not at all.
"""

from collections.abc import Iterable
from typing import Final

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.feature_levels import METADATA_VERSION, SCRAM_SINCE
from lograft.security.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    credential_of,
)
from lograft.wire.message import Message
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lograft.wire.records.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecord,
)
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord

#: Limits of what one request may store; Kafka's own tools use 26 bytes of salt.
NAME_LENGTH_MAX: Final = 255
SALT_BYTES_MAX: Final = 1024

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    by_user: dict[str, list[Change]] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    records: list[Message] = []
    results = []
    for user, user_changes in by_user.items():
        result = AlterUserScramCredentialsResult(user=user, error_message=None)
        try:
            records += _records_of(image, user_changes)
        except Rejected as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerResult(tuple(records), AlterUserScramCredentialsResponse(results=results))


def _records_of(image: MetadataImage, changes: Iterable[Change]) -> list[Message]:
    """Returns the records of one user's changes. Raises Rejected."""
    if image.features.get(METADATA_VERSION, 0) < SCRAM_SINCE:
        raise Rejected(
            ErrorCode.UNSUPPORTED_VERSION, "The current metadata version does not support SCRAM"
        )
    records: list[Message] = []
    changed: set[ScramMechanism] = set()
    for change in changes:
        mechanism = _check_name_and_mechanism(change)
        if mechanism in changed:
            raise Rejected(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        changed.add(mechanism)
        if isinstance(change, ScramCredentialDeletion):
            records.append(_removal(image, change, mechanism))
        else:
            records.append(_credential(change, mechanism))
    return records


def _check_name_and_mechanism(change: Change) -> ScramMechanism:
    if not change.name:
        raise _unacceptable("Username must not be empty")
    if len(change.name) > NAME_LENGTH_MAX:
        raise _unacceptable(f"Username must have at most {NAME_LENGTH_MAX} characters")
    if "\0" in change.name:
        raise _unacceptable("Username must not contain NUL characters")
    try:
        return ScramMechanism(change.mechanism)
    except ValueError:
        raise Rejected(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None


def _removal(
    image: MetadataImage, deletion: ScramCredentialDeletion, mechanism: ScramMechanism
) -> Message:
    if (mechanism, deletion.name) not in image.scram:
        raise Rejected(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=mechanism)


def _credential(upsertion: ScramCredentialUpsertion, mechanism: ScramMechanism) -> Message:
    if upsertion.iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    if upsertion.iterations < ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if not 0 < len(upsertion.salt) <= SALT_BYTES_MAX:
        raise _unacceptable(f"The salt must have 1 to {SALT_BYTES_MAX} bytes")
    if len(upsertion.salted_password) != mechanism.digest_size:
        raise _unacceptable(
            f"The salted password must have the {mechanism.digest_size} bytes of"
            f" {mechanism.mechanism_name}"
        )
    credential = credential_of(
        upsertion.name,
        mechanism,
        salted_password=upsertion.salted_password,
        salt=upsertion.salt,
        iterations=upsertion.iterations,
    )
    return UserScramCredentialRecord(
        name=credential.name,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _unacceptable(message: str) -> Rejected:
    return Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
