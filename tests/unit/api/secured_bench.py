"""A bench whose clients need ACLs, and the requests that change these. Its connections are those of
`User:ANONYMOUS`; tests give them another principal with `as_user`."""

from lograft.security.acls import Acl, AclPermission, PatternType
from lograft.security.authorization import Operation, Permission
from lograft.security.standard_authorizer import StandardAuthorizer
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tests.unit.broker.bench import Bench

ADMIN = "User:admin"
USER = "User:alice"


def secure(bench: Bench) -> StandardAuthorizer:
    """The only super user is the admin."""
    authorizer = StandardAuthorizer([ADMIN])
    bench.broker.metadata.authorizer = authorizer
    authorizer.complete_load()
    bench.authorize_with(authorizer)
    return authorizer


def as_user(bench: Bench, principal: str) -> None:
    """The sender of the following requests."""
    for role in ("broker", "controller"):
        bench.session(role).authenticate_as(principal)


def acl_of(
    permission: Permission,
    name: str,
    *,
    principal: str = USER,
    pattern: PatternType = PatternType.LITERAL,
    is_denied: bool = False,
) -> Acl:
    effect = AclPermission.DENY if is_denied else AclPermission.ALLOW
    operation: Operation
    operation, resource_type = permission
    return Acl(resource_type, name, pattern, principal, "*", operation, effect)


async def add_acls(bench: Bench, *acls: Acl) -> None:
    """As the admin; the user's connection stays as it is."""
    as_user(bench, ADMIN)
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response = await bench.ask(request, 3, CreateAclsResponse)
    assert [result.error_code for result in response.results] == [0] * len(acls)
    as_user(bench, USER)


async def remove_acls(bench: Bench, *acls: Acl) -> int:
    """Returns how many were removed."""
    as_user(bench, ADMIN)
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=acl.resource_type,
                resource_name_filter=acl.name,
                pattern_type_filter=acl.pattern_type,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response = await bench.ask(request, 3, DeleteAclsResponse)
    as_user(bench, USER)
    return sum(len(result.matching_acls) for result in response.filter_results)
