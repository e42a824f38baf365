"""DescribeDelegationToken, versions 1-3: the tokens that the principal may see, with their secrets.

A broker responds from its own metadata. A principal sees its own tokens, those that it may renew,
and those for which it has the permission to describe the token or the tokens of the owner. v3: the
requester of a token.
"""

from typing import Final

from lograft.api.authorization import is_allowed
from lograft.api.context import Api, Context
from lograft.api.delegation_tokens import may_request_tokens
from lograft.api.types import each_item
from lograft.metadata.delegation_tokens import belongs_to
from lograft.model.errors import ErrorCode
from lograft.model.settings.delegation_tokens import token_settings
from lograft.security.authorization import DELEGATION_TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS
from lograft.security.delegation_tokens import token_hmac
from lograft.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from lograft.wire.records.delegation_token_record import DelegationTokenRecord

API: Final = Api(
    key=41, versions=range(1, 4), needs=each_item(DELEGATION_TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS)
)


def handle(
    context: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    if not may_request_tokens(context):
        return DescribeDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        )
    settings = token_settings(context.shared.config)
    if settings is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners]
    return DescribeDelegationTokenResponse(
        tokens=[
            _describe(token, settings.secret_key, context.api_version)
            for token in context.shared.image.delegation_tokens.values()
            if _is_visible(context, token, owners)
        ]
    )


def _is_visible(context: Context, token: DelegationTokenRecord, owners: list[str] | None) -> bool:
    if owners is not None and not any(belongs_to(token, owner) for owner in owners):
        return False
    return (
        belongs_to(token, context.principal)
        or is_allowed(context, DELEGATION_TOKEN_DESCRIBE, token.token_id)
        or is_allowed(context, USER_DESCRIBE_TOKENS, token.owner)
    )


def _describe(
    token: DelegationTokenRecord, secret_key: bytes, version: int
) -> DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":") if version >= 3 else ("", "", "")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
