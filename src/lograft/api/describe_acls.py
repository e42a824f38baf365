"""DescribeAcls, versions 1-3: the ACLs that match a filter, grouped by resource pattern.

Reads the metadata image. Without an authorizer the request is rejected with SECURITY_DISABLED, as
from Kafka.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.metadata.acls import describe_acls
from lograft.model.errors import ErrorCode
from lograft.security.acls import Acl, describe_acl
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

API: Final = Api(key=29, versions=range(1, 4), needs=whole_request(CLUSTER_DESCRIBE))

NO_AUTHORIZER: Final = "No authorizer is configured on this node."


def log_change(context: Context, *, created: Acl | None = None, deleted: Acl | None = None) -> None:
    """Writes a change to the security log."""
    log = None if context.router is None else context.router.security_log
    if log is not None:
        log.write(
            "acl-change",
            context.peer,
            principal=context.principal,
            created="" if created is None else describe_acl(created),
            deleted="" if deleted is None else describe_acl(deleted),
        )


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if context.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in describe_acls(context.shared.image, request):
        pattern = (acl.resource_type, acl.name, acl.pattern_type)
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
