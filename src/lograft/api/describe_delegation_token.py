"""DescribeDelegationToken, versions 1-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

No listener of this release authenticates clients, so the error is that of Kafka's PLAINTEXT
listeners.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import each_item
from lograft.model.errors import ErrorCode
from lograft.security.authorization import DELEGATION_TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS
from lograft.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API: Final = Api(
    key=41, versions=range(1, 4), needs=each_item(DELEGATION_TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS)
)


def handle(
    context: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )
