"""ExpireDelegationToken, versions 1-2: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

No listener of this release authenticates clients, so the error is that of Kafka's PLAINTEXT
listeners.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import NOTHING
from lograft.model.errors import ErrorCode
from lograft.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

API: Final = Api(key=40, versions=range(1, 3), needs=NOTHING)

NO_TIMESTAMP: Final = -1


def handle(
    context: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def error_response(
    request: ExpireDelegationTokenRequest, code: ErrorCode, message: str
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
