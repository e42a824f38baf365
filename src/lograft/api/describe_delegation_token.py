"""DescribeDelegationToken, versions 1-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

No listener of this release authenticates clients, so the answer is that of Kafka's PLAINTEXT
listeners.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API: Final = Api(key=41, versions=range(1, 4))


def handle(
    context: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.delegation_token_request_not_allowed
    )
