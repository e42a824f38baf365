"""A bench whose clients need ACLs, and the requests that change these. Its connections are those of
`USER`; tests give them another principal with `as_user`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from lograft.model.seams import Channel
from lograft.security.acls import Acl, AclPermission, PatternType
from lograft.security.authorization import Operation, Permission
from lograft.security.standard_authorizer import StandardAuthorizer
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tests.unit.broker.bench import Bench, Peer

ADMIN = "User:admin"
USER = "User:alice"


def secure(bench: Bench) -> StandardAuthorizer:
    """The only super user is the admin."""
    authorizer = StandardAuthorizer([ADMIN])
    bench.broker.metadata.authorizer = authorizer
    authorizer.complete_load()
    bench.authorize_with(authorizer)
    as_user(bench, USER)
    return authorizer


def as_user(bench: Bench, principal: str) -> None:
    """The sender of the following requests."""
    for role in ("broker", "controller"):
        bench.session(role).authenticate_as(principal)


@contextmanager
def admin_connection(bench: Bench) -> Iterator[None]:
    """Requests use a connection of the admin; that of the user stays as it is."""
    sessions = bench._routers
    admin = bench.session("broker")._router(cast(Channel, Peer()))
    admin.authenticate_as(ADMIN)
    bench._routers = {"broker": admin}
    try:
        yield
    finally:
        bench._routers = sessions


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
    with admin_connection(bench):
        response = await bench.ask(request, 3, CreateAclsResponse)
    assert [result.error_code for result in response.results] == [0] * len(acls)


async def remove_acls(bench: Bench, *acls: Acl) -> int:
    """Returns how many were removed."""
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
    with admin_connection(bench):
        response = await bench.ask(request, 3, DeleteAclsResponse)
    return sum(len(result.matching_acls) for result in response.filter_results)
