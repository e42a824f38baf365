"""AlterClientQuotas, versions 0-1: rejected, because this release does not enforce quotas.

Every entry is rejected, even with validate_only: operators would rely on a quota that is stored
but not enforced.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER_CONFIGS
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

API: Final = Api(key=49, versions=range(2), needs=whole_request(CLUSTER_ALTER_CONFIGS))

REASON: Final = "Client quotas are not supported by this release of Lograft."


def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return error_response(request, ErrorCode.UNSUPPORTED_VERSION, REASON)


def error_response(
    request: AlterClientQuotasRequest, code: ErrorCode, message: str
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntryData(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponseEntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
