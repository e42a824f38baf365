"""AlterUserScramCredentials, version 0: adds, replaces and removes SCRAM credentials of users.

The active controller decides. Every user of the request gets one result; a change applies to the
next login.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.types import whole_request
from lograft.metadata.scram_users import alter_scram_credentials
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

API: Final = Api(key=51, versions=range(1), needs=whole_request(CLUSTER_ALTER))


def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> Coroutine[Any, Any, AlterUserScramCredentialsResponse]:
    return decide(context, lambda image: alter_scram_credentials(image, request))


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
