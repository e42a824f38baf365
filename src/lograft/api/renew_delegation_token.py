"""RenewDelegationToken, versions 1-2: extends the validity of a token, up to its maximum.

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
from lograft.metadata.delegation_tokens import renew_delegation_token
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

API: Final = Api(key=39, versions=range(1, 3), needs=NOTHING)


async def handle(
    context: Context, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    if may_request_tokens(context):
        requester = requester_of(context)
        response = await change_tokens(
            context,
            request,
            RenewDelegationTokenResponse,
            lambda image: renew_delegation_token(image, request, requester),
        )
    else:
        response = error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")
    log_change(context, "renew_token", response.error_code)
    return response


def error_response(
    request: RenewDelegationTokenRequest, code: ErrorCode, message: str
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
