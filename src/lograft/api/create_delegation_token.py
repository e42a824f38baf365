"""CreateDelegationToken, versions 1-3: creates a token with which a client can log in.

The active controller decides. v3: the owner may be a user other than the requester.
"""

import base64
from typing import Final

from lograft.api.authorization import find_denied
from lograft.api.context import Api, Context
from lograft.api.delegation_tokens import (
    change_tokens,
    log_change,
    may_request_tokens,
    requester_of,
)
from lograft.api.types import each_item
from lograft.metadata.delegation_tokens import create_delegation_token, owner_of, set_principals
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_TIMESTAMP
from lograft.security.authorization import USER_CREATE_TOKENS
from lograft.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

API: Final = Api(key=38, versions=range(1, 4), needs=each_item(USER_CREATE_TOKENS))
#: Bytes of a token id, which is random.
ID_BYTES: Final = 16


async def handle(
    context: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = owner_of(request, context.principal)
    if not may_request_tokens(context):
        response = error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")
        set_principals(response, owner, context.principal)
    elif owner != context.principal and find_denied(context, USER_CREATE_TOKENS, [owner]):
        response = error_response(request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "")
        set_principals(response, owner, context.principal)
    else:
        requester = requester_of(context)
        token_id = _make_id(context)
        response = await change_tokens(
            context,
            request,
            CreateDelegationTokenResponse,
            lambda image: create_delegation_token(image, request, requester, token_id=token_id),
        )
    log_change(
        context, "create_token", response.error_code, owner=owner, token_id=response.token_id
    )
    if context.api_version < 3:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response


def _make_id(context: Context) -> str:
    """Returns a random id in Kafka's format: base64url without padding."""
    data = context.shared.runtime.randomness.bytes(ID_BYTES)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def error_response(
    request: CreateDelegationTokenRequest, code: ErrorCode, message: str
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
