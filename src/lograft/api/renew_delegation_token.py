"""RenewDelegationToken, versions 1-2: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

No listener of this release authenticates clients, so the error is that of Kafka's PLAINTEXT
listeners.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import NOTHING
from lograft.model.errors import ErrorCode
from lograft.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

API: Final = Api(key=39, versions=range(1, 3), needs=NOTHING)

NO_TIMESTAMP: Final = -1


def handle(context: Context, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    return error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def error_response(
    request: RenewDelegationTokenRequest, code: ErrorCode, message: str
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
