"""CreateAcls, DescribeAcls and DeleteAcls with an authorizer, and their effect."""

import pytest

from lograft.model.errors import ErrorCode
from lograft.security.acls import PatternType
from lograft.security.authorization import (
    CLUSTER_DESCRIBE,
    CLUSTER_NAME,
    TOPIC_DESCRIBE,
    TOPIC_READ,
    TOPIC_WRITE,
)
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lograft.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.scenarios import scenario
from tests.unit.api.secured_bench import (
    ADMIN,
    USER,
    acl_of,
    add_acls,
    as_user,
    remove_acls,
    secure,
)
from tests.unit.broker.bench import Bench, run


async def topics_of(bench: Bench) -> list[str | None]:
    response = await bench.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    return [topic.name for topic in response.topics]


@scenario(run)
async def test_acls_apply_to_the_next_request(bench: Bench, /) -> None:
    for name in ("orders", "orders-eu", "payments"):
        await bench.create_topic(name)
    secure(bench)
    as_user(bench, USER)
    assert await topics_of(bench) == []
    wide = acl_of(TOPIC_READ, "orders", pattern=PatternType.PREFIXED)
    narrow = acl_of(TOPIC_DESCRIBE, "orders-eu", is_denied=True)
    await add_acls(bench, wide)
    assert await topics_of(bench) == ["orders", "orders-eu"]
    await add_acls(bench, narrow)
    assert await topics_of(bench) == ["orders"]
    assert await remove_acls(bench, wide) == 1
    assert await topics_of(bench) == []
    assert await remove_acls(bench, wide) == 0


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2, 3])
@scenario(run)
async def test_acls_are_described_by_pattern(bench: Bench, /, version: int, role: str) -> None:
    secure(bench)
    await add_acls(
        bench,
        acl_of(TOPIC_READ, "t"),
        acl_of(TOPIC_WRITE, "t"),
        acl_of(TOPIC_READ, "t", pattern=PatternType.PREFIXED),
        acl_of(TOPIC_READ, "u", principal="User:bob"),
    )
    as_user(bench, ADMIN)
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter="t",
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    response = await bench.ask(request, version, DescribeAclsResponse, role=role)
    assert (response.error_code, response.error_message) == (0, None)
    literal, prefixed = response.resources
    assert (literal.resource_name, literal.pattern_type) == ("t", PatternType.LITERAL)
    assert [(acl.principal, acl.operation) for acl in literal.acls] == [(USER, 3), (USER, 4)]
    assert [acl.permission_type for acl in prefixed.acls] == [3]
    request.operation = 99
    response = await bench.ask(request, version, DescribeAclsResponse, role=role)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message == "Unknown entryFilter."


@pytest.mark.parametrize("role", ["broker", "controller"])
@scenario(run)
async def test_only_permitted_principals_manage_acls(bench: Bench, /, role: str) -> None:
    secure(bench)
    await add_acls(bench, acl_of(CLUSTER_DESCRIBE, CLUSTER_NAME))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    creation = AclCreation(
        resource_type=2, resource_name="t", principal=USER, host="*", operation=2, permission_type=3
    )
    created = await bench.ask(
        CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse, role=role
    )
    assert [result.error_code for result in created.results] == [denied]
    every = DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    deleted = await bench.ask(DeleteAclsRequest(filters=[every]), 3, DeleteAclsResponse, role=role)
    assert [result.error_code for result in deleted.filter_results] == [denied]
    assert len(bench.broker.image.acls) == 1
    described = await bench.ask(
        DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
        3,
        DescribeAclsResponse,
        role=role,
    )
    assert described.error_code == 0
