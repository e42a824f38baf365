"""The controller's decisions about ACLs, with the limits and error codes of Kafka.

Each ACL of a request, and each filter, has a result of its own. The records of a request are
written in one batch.
"""

from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.metadata.image_records import acl_record
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.security.acls import ANY, UNKNOWN, Acl, AclFilter, AclPermission, PatternType
from lograft.security.authorization import CLUSTER_NAME, Operation, ResourceType
from lograft.wire.message import Message
from lograft.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lograft.wire.messages.describe_acls import DescribeAclsRequest
from lograft.wire.records.remove_access_control_entry_record import (
    RemoveAccessControlEntryRecord,
)

#: ACLs that one request may create, or remove.
CHANGES_MAX: Final = 10_000
_RESOURCE_TYPE_MAX: Final = max(ResourceType)
_OPERATION_MAX: Final = max(Operation)
_PATTERN_TYPE_MAX: Final = max(PatternType)
_PERMISSION_MAX: Final = max(AclPermission)


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, *, new_id: Callable[[], UUID]
) -> ControllerResult[CreateAclsResponse]:
    """An ACL that exists is not created again."""
    records: dict[Acl, Message] = {}
    results = []
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        try:
            acl = _new_acl(creation)
            if acl not in image.acl_ids and acl not in records:
                records[acl] = acl_record(new_id(), acl)
        except Rejected as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    if len(records) > CHANGES_MAX:
        raise Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"Cannot create more than {CHANGES_MAX} ACLs in one request.",
        )
    return ControllerResult(tuple(records.values()), CreateAclsResponse(results=results))


def delete_acls(
    image: MetadataImage, request: DeleteAclsRequest
) -> ControllerResult[DeleteAclsResponse]:
    removed: dict[UUID, Message] = {}
    results = []
    for requested in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        try:
            selected = dict(_select(image, _deletion_filter(requested)))
            if len(removed.keys() | selected.keys()) > CHANGES_MAX:
                raise _invalid(
                    f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation."
                )
            for acl_id, acl in selected.items():
                removed[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
                result.matching_acls.append(_matching_acl(acl))
        except Rejected as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerResult(tuple(removed.values()), DeleteAclsResponse(filter_results=results))


def describe_acls(image: MetadataImage, request: DescribeAclsRequest) -> Iterator[Acl]:
    """Raises Rejected for an invalid filter."""
    selected = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    _check_filter(selected)
    return (acl for _, acl in _select(image, selected))


def _select(image: MetadataImage, selected: AclFilter) -> Iterator[tuple[UUID, Acl]]:
    return ((acl_id, acl) for acl_id, acl in image.acls.items() if selected.matches(acl))


def acl_of_creation(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def acl_of_match(match: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        match.resource_type,
        match.resource_name,
        match.pattern_type,
        match.principal,
        match.host,
        match.operation,
        match.permission_type,
    )


def _new_acl(creation: AclCreation) -> Acl:
    """Raises Rejected."""
    acl = acl_of_creation(creation)
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _invalid("Invalid empty resource name")
    if not ANY < acl.resource_type <= _RESOURCE_TYPE_MAX:
        raise _invalid(f"Invalid resourceType {_name_of(acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {_pattern_name(acl.pattern_type)}")
    if not ANY < acl.operation <= _OPERATION_MAX:
        raise _invalid(f"Invalid operation {_name_of(acl.operation)}")
    if acl.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        raise _invalid(f"Invalid permissionType {_name_of(acl.permission)}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the"
            " principal type from the principal name)"
        )
    return acl


def _deletion_filter(requested: DeleteAclsFilter) -> AclFilter:
    selected = AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )
    _check_filter(selected)
    return selected


def _check_filter(selected: AclFilter) -> None:
    if not (
        UNKNOWN < selected.resource_type <= _RESOURCE_TYPE_MAX
        and UNKNOWN < selected.pattern_type <= _PATTERN_TYPE_MAX
    ):
        raise _invalid("Unknown patternFilter.")
    if not (
        UNKNOWN < selected.operation <= _OPERATION_MAX
        and UNKNOWN < selected.permission <= _PERMISSION_MAX
    ):
        raise _invalid("Unknown entryFilter.")


def _matching_acl(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _name_of(number: int) -> str:
    return "ANY" if number == ANY else "UNKNOWN"


def _pattern_name(number: int) -> str:
    return PatternType(number).name if number in list(PatternType) else "UNKNOWN"


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, message)
