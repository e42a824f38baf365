"""DescribeClientQuotas, versions 0-1: the client quotas that match a filter.

Reads the metadata image.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.metadata.client_quotas import QuotaFilter, select_quotas
from lograft.model.errors import ErrorCode, Rejected
from lograft.security.authorization import CLUSTER_DESCRIBE_CONFIGS
from lograft.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

API: Final = Api(key=48, versions=range(2), needs=whole_request(CLUSTER_DESCRIBE_CONFIGS))


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        selected = QuotaFilter(request.components, strict=request.strict)
    except Rejected as error:
        return error_response(request, error.code, error.message)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in select_quotas(context.broker.image, selected)
        ],
    )


def error_response(
    request: DescribeClientQuotasRequest, code: ErrorCode, message: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
