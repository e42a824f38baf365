"""ExpireDelegationToken, versions 1-2: expires a token, now or at a later time.

The active controller decides; the owner and the renewers of a token may change it.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.delegation_tokens import (
    change_tokens,
    log_change,
    may_request_tokens,
    requester_of,
)
from lograft.api.types import NOTHING
from lograft.metadata.delegation_tokens import expire_delegation_token
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

API: Final = Api(key=40, versions=range(1, 3), needs=NOTHING)


async def handle(
    context: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    if may_request_tokens(context):
        requester = requester_of(context)
        response = await change_tokens(
            context,
            request,
            ExpireDelegationTokenResponse,
            lambda image: expire_delegation_token(image, request, requester),
        )
    else:
        response = error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")
    log_change(context, "expire_token", response.error_code)
    return response


def error_response(
    request: ExpireDelegationTokenRequest, code: ErrorCode, message: str
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
