"""Requests about SCRAM users, whose credentials are in the cluster metadata.

The client derives the credential from the password, so the password itself is never sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, broker_error, raise_for
from lograft.client.network import Node
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.security.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    make_salt,
    salt_password,
)
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lograft.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Creates a user, or replaces the password of an existing one for this mechanism.

    change = ScramUpsertion("alice", "correct horse battery staple")
    await admin.alter_user_scram_credentials([change])
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = DEFAULT_MECHANISM
    iterations: int = ITERATIONS_MIN


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Removes the password of a user for this mechanism.

    await admin.alter_user_scram_credentials([ScramUpsertion("bob", "secret")])
    await admin.alter_user_scram_credentials([ScramDeletion("bob")])
    """

    user: str
    mechanism: str = DEFAULT_MECHANISM


async def describe_user_scram_credentials(
    driver: RequestDriver, users: Iterable[str] | None
) -> dict[str, dict[str, int]]:
    names = None if users is None else list(as_iterable(users))
    response = await driver.result_of(
        DescribeUserScramCredentialsRequest(
            users=None if names is None else [UserName(name=name) for name in names]
        ),
        DescribeUserScramCredentialsResponse,
        lambda response: raise_for(response.error_code, "SCRAM users", response.error_message),
    )
    found: dict[str, dict[str, int]] = {}
    for result in response.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_for(result.error_code, f"user {result.user}", result.error_message)
        found[result.user] = {
            ScramMechanism(info.mechanism).mechanism_name: info.iterations
            for info in result.credential_infos
        }
    return found


async def alter_user_scram_credentials(
    driver: RequestDriver, changes: Sequence[ScramUpsertion | ScramDeletion]
) -> None:
    upsertions: dict[str, list[ScramCredentialUpsertion]] = {}
    deletions: dict[str, list[ScramCredentialDeletion]] = {}
    for change in changes:
        mechanism = _mechanism(change.mechanism)
        if isinstance(change, ScramDeletion):
            deletion = ScramCredentialDeletion(name=change.user, mechanism=mechanism)
            deletions.setdefault(change.user, []).append(deletion)
        else:
            upsertion = _derive(driver, change, mechanism)
            upsertions.setdefault(change.user, []).append(upsertion)

    async def send(node: Node | None, users: Sequence[str]) -> Mapping[str, ClientError | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[each for user in users for each in deletions.get(user, ())],
            upsertions=[each for user in users for each in upsertions.get(user, ())],
        )
        response = await driver.send(node, request, AlterUserScramCredentialsResponse)
        return {
            result.user: broker_error(
                result.error_code, f"user {result.user}", result.error_message
            )
            if result.error_code
            else None
            for result in response.results
        }

    await driver.results_of([*{**upsertions, **deletions}], driver.find_controller, send)


def _derive(
    driver: RequestDriver, change: ScramUpsertion, mechanism: ScramMechanism
) -> ScramCredentialUpsertion:
    if not change.password:
        raise InvalidInput(f"the password of user {change.user} is empty")
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise InvalidInput(
            f"the number of iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}, but is"
            f" {change.iterations}"
        )
    salt = make_salt(driver.random_bytes(64), SALT_BYTES)
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=salt_password(mechanism, change.password, salt, change.iterations),
    )


def _mechanism(name: str) -> ScramMechanism:
    mechanisms = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}
    if name not in mechanisms:
        raise InvalidInput(f"{name!r} is not one of {', '.join(mechanisms)}")
    return mechanisms[name]
