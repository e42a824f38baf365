"""AlterUserScramCredentials, version 0: adds, replaces and removes SCRAM credentials of users.

The active controller decides, and writes one line for each user into the security log. Every user
of the request gets one result; a change applies to the next login.
"""

from collections.abc import Sequence
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.types import whole_request
from lograft.metadata.scram_users import alter_scram_credentials
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.security.scram_credentials import ScramMechanism
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

API: Final = Api(key=51, versions=range(1), needs=whole_request(CLUSTER_ALTER))


async def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    response = await decide(context, lambda image: alter_scram_credentials(image, request))
    _log_changes(context, request, response)
    return response


def _log_changes(
    context: Context,
    request: AlterUserScramCredentialsRequest,
    response: AlterUserScramCredentialsResponse,
) -> None:
    security_log = None if context.router is None else context.router.security_log
    if security_log is None:
        return
    for result in response.results:
        code = result.error_code
        security_log.write(
            "user-change",
            context.peer,
            failed=bool(code),
            reason=ErrorCode(code).name if code else "",
            principal=context.principal,
            user=result.user,
            set=_mechanisms(request.upsertions, result.user),
            removed=_mechanisms(request.deletions, result.user),
            listener=context.listener,
        )


def _mechanisms(
    changes: Sequence[ScramCredentialUpsertion | ScramCredentialDeletion], user: str
) -> str:
    known = {mechanism.value: mechanism.mechanism_name for mechanism in ScramMechanism}
    numbers = dict.fromkeys(change.mechanism for change in changes if change.name == user)
    return ",".join(known.get(number, str(number)) for number in numbers)


def error_response(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(
        [deletion.name for deletion in request.deletions]
        + [upsertion.name for upsertion in request.upsertions]
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user in users
        ]
    )
