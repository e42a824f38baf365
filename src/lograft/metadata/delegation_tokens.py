"""The controller's decisions about delegation tokens: they are created, renewed and removed.

A token belongs to its owner, who need not be the principal that requested it. Its owner and its
renewers may renew and expire it. As in Kafka, a token that has expired stays in the metadata until
the active controller removes it, and cannot be used in the meantime.
"""

import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode
from lograft.model.feature_levels import DELEGATION_TOKENS_SINCE, METADATA_VERSION
from lograft.model.settings.delegation_tokens import TokenSettings
from lograft.model.settings.keys import LONG_MAX
from lograft.security.delegation_tokens import token_hmac
from lograft.wire.message import Message
from lograft.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lograft.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from lograft.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from lograft.wire.records.remove_delegation_token_record import RemoveDelegationTokenRecord

USER: Final = "User"
NO_TIMESTAMP: Final = -1
#: Renewers are stored with the token.
RENEWERS_MAX: Final = 1_000
#: Records that one removal of expired tokens writes.
REMOVED_MAX: Final = 1_000


class TokenRequester(NamedTuple):
    """The requester, and the other inputs of the decisions besides the image."""

    #: As in an ACL: "User:alice".
    principal: str
    #: None: delegation tokens are disabled.
    settings: TokenSettings | None
    now_ms: int


def create_delegation_token(
    image: MetadataImage,
    request: CreateDelegationTokenRequest,
    requester: TokenRequester,
    *,
    token_id: str,
) -> ControllerResult[CreateDelegationTokenResponse]:
    """`token_id` is random."""
    owner = owner_of(request, requester.principal)
    response = CreateDelegationTokenResponse()
    set_principals(response, owner, requester.principal)
    settings, now_ms = requester.settings, requester.now_ms
    problem = _find_general_problem(image, settings)
    if problem is None and not _are_users(request):
        problem = ErrorCode.INVALID_PRINCIPAL_TYPE
    if problem is None and len(request.renewers) > RENEWERS_MAX:
        problem = ErrorCode.INVALID_REQUEST
    if problem is not None:
        response.error_code = problem
        if problem is ErrorCode.INVALID_PRINCIPAL_TYPE:
            # As in the response of Kafka's brokers, which check it.
            response.issue_timestamp_ms = response.max_timestamp_ms = NO_TIMESTAMP
            response.expiry_timestamp_ms = NO_TIMESTAMP
        return ControllerResult((), response)
    assert settings is not None
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    response.issue_timestamp_ms = now_ms
    response.max_timestamp_ms = _sum(now_ms, lifetime_ms)
    response.expiry_timestamp_ms = min(
        response.max_timestamp_ms, _sum(now_ms, settings.expiry_time_ms)
    )
    response.token_id = token_id
    response.hmac = token_hmac(settings.secret_key, token_id)
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester.principal,
        renewers=[f"{user.principal_type}:{user.principal_name}" for user in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=response.max_timestamp_ms,
        expiration_timestamp=response.expiry_timestamp_ms,
        token_id=token_id,
    )
    return ControllerResult((record,), response)


def renew_delegation_token(
    image: MetadataImage, request: RenewDelegationTokenRequest, requester: TokenRequester
) -> ControllerResult[RenewDelegationTokenResponse]:
    found = _find_own(image, request.hmac, requester)
    if isinstance(found, DelegationTokenRecord) and is_expired(found, requester.now_ms):
        found = ErrorCode.DELEGATION_TOKEN_EXPIRED
    elif found is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH and _is_expired_token(
        image, request.hmac, requester
    ):
        # Kafka checks expiration first in renew, but last in expire.
        found = ErrorCode.DELEGATION_TOKEN_EXPIRED
    if isinstance(found, ErrorCode):
        return ControllerResult((), RenewDelegationTokenResponse(error_code=found))
    assert requester.settings is not None
    period_ms = requester.settings.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expires_ms = min(found.max_timestamp, _sum(requester.now_ms, period_ms))
    return ControllerResult(
        (_with_expiry(found, expires_ms),),
        RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms),
    )


def expire_delegation_token(
    image: MetadataImage, request: ExpireDelegationTokenRequest, requester: TokenRequester
) -> ControllerResult[ExpireDelegationTokenResponse]:
    found = _find_own(image, request.hmac, requester)
    now_ms = requester.now_ms
    records: tuple[Message, ...]
    if isinstance(found, ErrorCode):
        return ControllerResult((), ExpireDelegationTokenResponse(error_code=found))
    if request.expiry_time_period_ms < 0:
        records, expires_ms = (RemoveDelegationTokenRecord(token_id=found.token_id),), now_ms
    elif is_expired(found, now_ms):
        return ControllerResult(
            (), ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
        )
    else:
        expires_ms = min(found.max_timestamp, _sum(now_ms, request.expiry_time_period_ms))
        records = (_with_expiry(found, expires_ms),)
    return ControllerResult(records, ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms))


def remove_expired_tokens(image: MetadataImage, now_ms: int) -> ControllerResult[Sequence[str]]:
    """Replies with the ids of the tokens that are removed."""
    expired = [
        token_id for token_id, token in image.delegation_tokens.items() if is_expired(token, now_ms)
    ][:REMOVED_MAX]
    return ControllerResult(
        tuple(RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired), expired
    )


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def belongs_to(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal is the owner, the requester or a renewer."""
    return principal in (token.owner, token.requester) or principal in token.renewers


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Returns the principal for which a token is requested: the requester, unless another one is
    named (KIP-373)."""
    if request.owner_principal_name:
        return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    return requester


def set_principals(response: CreateDelegationTokenResponse, owner: str, requester: str) -> None:
    response.principal_type, _, response.principal_name = owner.partition(":")
    (
        response.token_requester_principal_type,
        _,
        response.token_requester_principal_name,
    ) = requester.partition(":")


def _are_users(request: CreateDelegationTokenRequest) -> bool:
    """A principal of another type could be taken for the user of the same name at a login."""
    has_user = not request.owner_principal_name or request.owner_principal_type == USER
    return has_user and all(renewer.principal_type == USER for renewer in request.renewers)


def _find_general_problem(image: MetadataImage, settings: TokenSettings | None) -> ErrorCode | None:
    if settings is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if image.features.get(METADATA_VERSION, 0) < DELEGATION_TOKENS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


def _find_own(
    image: MetadataImage, given: bytes, requester: TokenRequester
) -> DelegationTokenRecord | ErrorCode:
    """Returns the token with this HMAC, or why the principal may not change it."""
    problem = _find_general_problem(image, requester.settings)
    if problem is not None:
        return problem
    token = _find_token(image, given, requester)
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if requester.principal != token.owner and requester.principal not in token.renewers:
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return token


def _is_expired_token(image: MetadataImage, given: bytes, requester: TokenRequester) -> bool:
    token = _find_token(image, given, requester)
    return token is not None and is_expired(token, requester.now_ms)


def _find_token(
    image: MetadataImage, given: bytes, requester: TokenRequester
) -> DelegationTokenRecord | None:
    assert requester.settings is not None
    for token_id, token in image.delegation_tokens.items():
        if hmac.compare_digest(token_hmac(requester.settings.secret_key, token_id), given):
            return token
    return None


def _with_expiry(token: DelegationTokenRecord, expires_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expires_ms,
        token_id=token.token_id,
    )


def _sum(time_ms: int, period_ms: int) -> int:
    return min(time_ms + period_ms, LONG_MAX)
