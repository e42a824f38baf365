"""DeleteAcls, versions 1-3: the active controller removes the ACLs that match a filter.

Each filter has a result of its own, with the ACLs that it matched. Without an authorizer the
request is rejected with SECURITY_DISABLED, as from Kafka.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.describe_acls import NO_AUTHORIZER, log_change
from lograft.api.types import whole_request
from lograft.metadata.acls import acl_of_match, delete_acls
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

API: Final = Api(key=31, versions=range(1, 4), needs=whole_request(CLUSTER_ALTER))


def handle(
    context: Context, request: DeleteAclsRequest
) -> DeleteAclsResponse | Coroutine[Any, Any, DeleteAclsResponse]:
    if context.authorizer is None:
        return error_response(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return _delete(context, request)


async def _delete(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    response = await decide(context, lambda image: delete_acls(image, request))
    matches = (match for result in response.filter_results for match in result.matching_acls)
    for acl in dict.fromkeys(map(acl_of_match, matches)):
        log_change(context, deleted=acl)
    return response


def error_response(request: DeleteAclsRequest, code: ErrorCode, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters
        ]
    )
