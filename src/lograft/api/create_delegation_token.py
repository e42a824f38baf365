"""CreateDelegationToken, versions 1-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka issues tokens only to authenticated clients. No listener of this release authenticates
clients, so the error is that of Kafka's PLAINTEXT listeners. v3: the requester.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import each_item
from lograft.model.errors import ErrorCode
from lograft.security.authorization import USER_CREATE_TOKENS
from lograft.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

API: Final = Api(key=38, versions=range(1, 4), needs=each_item(USER_CREATE_TOKENS))

NO_TIMESTAMP: Final = -1


def handle(
    context: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    kind, _, name = context.principal.partition(":")
    response = error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")
    response.principal_type = response.token_requester_principal_type = kind
    response.principal_name = response.token_requester_principal_name = name
    if context.api_version < 3:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response


def error_response(
    request: CreateDelegationTokenRequest, code: ErrorCode, message: str
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
