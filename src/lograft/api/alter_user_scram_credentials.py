"""AlterUserScramCredentials, version 0: rejected, because this release has no SASL authentication.

Every user of the request gets one result, as in Kafka.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

API: Final = Api(key=51, versions=range(1), needs=whole_request(CLUSTER_ALTER))

REASON: Final = (
    "SCRAM credentials cannot be changed: this release of Lograft has no SASL authentication."
)


def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    return error_response(request, ErrorCode.SECURITY_DISABLED, REASON)


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
