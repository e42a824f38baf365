"""Requests that create, list and delete ACLs, and find the rule that determines whether an
operation is allowed."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import WrongUse, raise_for
from lograft.security.acls import Acl, AclFilter, PatternType, describe_acl
from lograft.security.authorization import Need
from lograft.security.standard_authorizer import Rule, StandardAuthorizer
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lograft.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def create_acls(driver: RequestDriver, acls: Iterable[Acl]) -> None:
    requested = list(as_iterable(acls))

    def check(response: CreateAclsResponse) -> None:
        for acl, result in zip(requested, response.results, strict=True):
            raise_for(result.error_code, f"the ACL {describe_acl(acl)}", result.error_message)

    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in requested
    ]
    await driver.result_of(CreateAclsRequest(creations=creations), CreateAclsResponse, check)


async def list_acls(driver: RequestDriver, selected: AclFilter) -> list[Acl]:
    response = await driver.result_of(
        DescribeAclsRequest(
            resource_type_filter=selected.resource_type,
            resource_name_filter=selected.name,
            pattern_type_filter=selected.pattern_type,
            principal_filter=selected.principal,
            host_filter=selected.host,
            operation=selected.operation,
            permission_type=selected.permission,
        ),
        DescribeAclsResponse,
        lambda response: raise_for(response.error_code, "the ACLs", response.error_message),
    )
    return sorted(
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    )


async def delete_acls(driver: RequestDriver, filters: Iterable[AclFilter]) -> list[Acl]:
    requested = list(as_iterable(filters))

    def check(response: DeleteAclsResponse) -> None:
        for result in response.filter_results:
            raise_for(result.error_code, "the ACLs", result.error_message)

    response = await driver.result_of(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in requested
            ]
        ),
        DeleteAclsResponse,
        check,
    )
    return sorted(set(_find_deleted(response.filter_results)))


def _find_deleted(results: Sequence[DeleteAclsFilterResult]) -> Iterable[Acl]:
    for result in results:
        for match in result.matching_acls:
            yield Acl(
                match.resource_type,
                match.resource_name,
                match.pattern_type,
                match.principal,
                match.host,
                match.operation,
                match.permission_type,
            )


async def explain_access(driver: RequestDriver, principal: str, need: Need, host: str) -> Rule:
    if ":" not in principal:
        raise WrongUse(f"a principal has a type and a name, for example User:{principal}")
    selected = AclFilter(need.resource_type, need.name, PatternType.MATCH)
    authorizer = StandardAuthorizer()
    acls = await list_acls(driver, selected)
    authorizer.update({UUID(int=number): acl for number, acl in enumerate(acls)})
    authorizer.complete_load()
    return authorizer.explain(principal, host, need)
