"""CreateAcls, versions 1-3: the active controller stores ACLs in the metadata log.

Each ACL has a result of its own. Without an authorizer the request is rejected with
SECURITY_DISABLED, as from Kafka.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.describe_acls import NO_AUTHORIZER, log_change
from lograft.api.types import whole_request
from lograft.metadata.acls import acl_of_creation, create_acls
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

API: Final = Api(key=30, versions=range(1, 4), needs=whole_request(CLUSTER_ALTER))


def handle(
    context: Context, request: CreateAclsRequest
) -> CreateAclsResponse | Coroutine[Any, Any, CreateAclsResponse]:
    if context.authorizer is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return _create(context, request)


async def _create(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    new_id = context.shared.runtime.randomness.uuid
    response = await decide(context, lambda image: create_acls(image, request, new_id=new_id))
    for creation, result in zip(request.creations, response.results, strict=True):
        if not result.error_code:
            log_change(context, created=acl_of_creation(creation))
    return response


def error_response(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code, error_message=message) for _ in request.creations
        ]
    )
