"""DescribeAcls, versions 1-3: SECURITY_DISABLED, as from a Kafka broker without an authorizer."""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.model.errors import ErrorCode
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

API: Final = Api(key=29, versions=range(1, 4), needs=whole_request(CLUSTER_DESCRIBE))

NO_AUTHORIZER: Final = "No authorizer is configured on this node."


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
