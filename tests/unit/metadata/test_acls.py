from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from lograft.metadata import acls
from lograft.metadata.acls import create_acls, delete_acls, describe_acls
from lograft.metadata.image import MetadataImage
from lograft.metadata.image_difference import difference
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.security.acls import Acl
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lograft.wire.messages.describe_acls import DescribeAclsRequest
from tests.unit.metadata.conftest import append

MakeImage = Callable[..., MetadataImage]


def new_ids() -> Iterator[UUID]:
    number = 1
    while True:
        yield UUID(int=number)
        number += 1


def creation(**changes: object) -> AclCreation:
    values = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**(values | changes))  # type: ignore[arg-type]


def create(image: MetadataImage, *creations: AclCreation) -> ControllerResult[CreateAclsResponse]:
    ids = new_ids()
    request = CreateAclsRequest(creations=list(creations))
    return create_acls(image, request, new_id=lambda: next(ids))


def every(**changes: object) -> DeleteAclsFilter:
    values = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**(values | changes))  # type: ignore[arg-type]


def delete(
    image: MetadataImage, *filters: DeleteAclsFilter
) -> ControllerResult[DeleteAclsResponse]:
    return delete_acls(image, DeleteAclsRequest(filters=list(filters)))


def names(result: ControllerResult[DeleteAclsResponse]) -> list[list[str]]:
    return [
        [acl.resource_name for acl in each.matching_acls] for each in result.reply.filter_results
    ]


def test_acls_are_created_once(cluster: MakeImage) -> None:
    image = cluster(1)
    first = create(image, creation(), creation(resource_name="u"), creation())
    assert [result.error_code for result in first.reply.results] == [0, 0, 0]
    assert len(first.records) == 2
    append(image, first.records)
    assert sorted(acl.name for acl in image.acls.values()) == ["t", "u"]
    again = create(image, creation(), creation(operation=4))
    assert [result.error_code for result in again.reply.results] == [0, 0]
    assert len(again.records) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 8}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": -1}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 5}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_invalid_acl_is_rejected_alone(
    cluster: MakeImage, changes: dict[str, object], message: str
) -> None:
    result = create(cluster(1), creation(**changes), creation())
    rejected, created = result.reply.results
    assert rejected.error_code == ErrorCode.INVALID_REQUEST
    assert (rejected.error_message or "").startswith(message)
    assert (created.error_code, created.error_message) == (0, None)
    assert len(result.records) == 1


def test_two_phase_commit_and_cluster_are_valid(cluster: MakeImage) -> None:
    valid = [
        creation(resource_type=5, operation=15),
        creation(resource_type=4, resource_name="kafka-cluster", operation=2),
        creation(resource_type=7, resource_name="User:b", operation=13),
        creation(resource_pattern_type=4, permission_type=2),
    ]
    result = create(cluster(1), *valid)
    assert [each.error_message for each in result.reply.results] == [None] * 4


def test_acls_are_deleted_by_filter(cluster: MakeImage) -> None:
    image = cluster(1)
    append(
        image,
        create(
            image,
            creation(),
            creation(resource_name="u"),
            creation(resource_name="v", principal="User:b"),
        ).records,
    )
    result = delete(image, every(resource_name_filter="u"), every(principal_filter="User:a"))
    # As in Kafka, an ACL that two filters match is in both results.
    assert names(result) == [["u"], ["t", "u"]]
    assert len(result.records) == 2
    append(image, result.records)
    assert [acl.name for acl in image.acls.values()] == ["v"]
    assert list(image.acl_ids) == list(image.acls.values())
    assert names(delete(image, every(principal_filter="User:a"))) == [[]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type_filter": 0}, "Unknown patternFilter."),
        ({"resource_type_filter": 8}, "Unknown patternFilter."),
        ({"pattern_type_filter": 5}, "Unknown patternFilter."),
        ({"operation": 16}, "Unknown entryFilter."),
        ({"permission_type": 0}, "Unknown entryFilter."),
        ({"permission_type": 4}, "Unknown entryFilter."),
    ],
)
def test_unknown_filter_is_rejected_alone(
    cluster: MakeImage, changes: dict[str, object], message: str
) -> None:
    image = cluster(1)
    append(image, create(image, creation()).records)
    result = delete(image, every(**changes), every())
    rejected, deleted = result.reply.filter_results
    assert (rejected.error_code, rejected.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert len(deleted.matching_acls) == 1
    described = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    for name, value in changes.items():
        setattr(described, name, value)
    with pytest.raises(Rejected, match=message):
        list(describe_acls(image, described))


def test_requests_that_change_too_many_are_rejected(
    cluster: MakeImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "CHANGES_MAX", 2)
    image = cluster(1)
    with pytest.raises(Rejected, match="more than 2 ACLs") as rejected:
        create(image, *(creation(resource_name=name) for name in "abc"))
    assert rejected.value.code is ErrorCode.POLICY_VIOLATION
    for name in "abc":
        append(image, create(image, creation(resource_name=name)).records)
        image.acls[UUID(int=ord(name))] = image.acls.pop(UUID(int=1))
    result = delete(image, every(resource_name_filter="a"), every())
    assert names(result) == [["a"], []]
    assert result.reply.filter_results[1].error_code == ErrorCode.INVALID_REQUEST


def test_image_reports_changes_and_rebuilds_itself(cluster: MakeImage) -> None:
    image = cluster(1)
    before = image.copy()
    append(image, create(image, creation(), creation(resource_name="u")).records)
    assert set(difference(before, image).acls) == set(image.acls)
    assert before.acls == {} == before.acl_ids
    rebuilt = MetadataImage()
    for record in image.records():
        rebuilt.replay(record)
    assert rebuilt.acls == image.acls
    assert rebuilt.acl_ids == image.acl_ids
    assert Acl(2, "u", 3, "User:a", "*", 3, 3) in rebuilt.acl_ids
    assert set(difference(image, before).acls) == set(image.acls)
