"""CreateAcls, versions 1-3: SECURITY_DISABLED, as from a Kafka broker without an authorizer."""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.describe_acls import NO_AUTHORIZER
from lograft.api.types import whole_request
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

API: Final = Api(key=30, versions=range(1, 4), needs=whole_request(CLUSTER_ALTER))


def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    return error_response(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def error_response(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code, error_message=message) for _ in request.creations
        ]
    )
