"""AlterClientQuotas, versions 0-1: sets and removes quotas of users, client ids and IP addresses.

The active controller decides. Every entity of the request gets one result; a change applies as soon
as the brokers have read it from the metadata log.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.types import whole_request
from lograft.metadata.client_quotas import alter_client_quotas
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER_CONFIGS
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

API: Final = Api(key=49, versions=range(2), needs=whole_request(CLUSTER_ALTER_CONFIGS))


async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    response = await decide(context, lambda image: alter_client_quotas(image, request))
    if not request.validate_only:
        _log(context, request, response)
    return response


def _log(
    context: Context, request: AlterClientQuotasRequest, response: AlterClientQuotasResponse
) -> None:
    """Writes one line for each entity."""
    router = context.router
    if router is None or router.security_log is None:
        return
    results = {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): entry
        for entry in response.entries
    }
    for entry in request.entries:
        names = {part.entity_type: part.entity_name for part in entry.entity}
        result = results[tuple(sorted(names.items(), key=lambda item: item[0]))]
        changes = (f"{op.key}={'none' if op.remove else f'{op.value:g}'}" for op in entry.ops)
        router.security_log.write(
            "quota-change",
            context.peer,
            failed=bool(result.error_code),
            reason=result.error_message or "",
            principal=context.principal,
            entity=",".join(f"{kind}={name or '<default>'}" for kind, name in names.items()),
            change=",".join(changes),
        )


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
