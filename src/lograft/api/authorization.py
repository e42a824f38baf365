"""Checks permissions with the authorizer: the router for whole requests, handlers for list items.

Without an authorizer everything is allowed, and nothing is computed.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from lograft.model.errors import ErrorCode, Rejected
from lograft.security.authorization import (
    CLUSTER_DESCRIBE,
    CLUSTER_NAME,
    Authorizer,
    Need,
    Operation,
    Permission,
    ResourceType,
)
from lograft.wire.apis import API_VERSIONS

if TYPE_CHECKING:
    from lograft.api.context import Context
    from lograft.api.types import Needs, RequestNeed

NO_NAMES: Final[frozenset[str]] = frozenset()
#: The error code for a denied permission, by resource type.
DENIED_CODE: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
#: The operations that Kafka supports on a resource, for bit fields as in Metadata.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def cluster_operations(context: "Context") -> int:
    """Returns the bit field, empty for a principal that may not describe the cluster."""
    if not is_allowed(context, CLUSTER_DESCRIBE, is_probe=True):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER)


def bit_field(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


ALL_OPERATIONS: Final = {kind: bit_field(known) for kind, known in OPERATIONS.items()}


def check_request(context: "Context", needs: "Needs", request: Any) -> None:
    """Raises Rejected if the principal lacks a permission that the whole request requires."""
    authorizer = context.authorizer
    if authorizer is None:
        return
    for need in needs.request:
        if need.when(request):
            _check(context, authorizer, need, list(dict.fromkeys(need.names(request))))


def _check(
    context: "Context", authorizer: Authorizer, need: "RequestNeed", names: list[str]
) -> None:
    if not names:
        return
    for permission in need.any_of:
        if not (denied := _find_denied_names(context, authorizer, permission, names)):
            return
    _log_denied(context, authorizer, permission, denied)
    raise permission_error(permission, names[0])


def find_denied(
    context: "Context",
    permission: Permission,
    names: Iterable[str],
    *,
    unless: Permission | None = None,
    is_filter: bool = False,
) -> frozenset[str]:
    """Returns the names for which the principal lacks the permission, and writes them to the
    security log. `unless`: a permission on the cluster that implies the permission on every name.
    `is_filter`: the names are not in the request, and the response omits those that are denied."""
    authorizer = context.authorizer
    if authorizer is None:
        return NO_NAMES
    unique_names = list(dict.fromkeys(names))
    if not unique_names or (unless is not None and is_allowed(context, unless, is_probe=True)):
        return NO_NAMES
    denied = _find_denied_names(context, authorizer, permission, unique_names)
    if denied and not is_filter:
        _log_denied(context, authorizer, permission, denied)
    return denied


def is_allowed(
    context: "Context",
    permission: Permission,
    name: str = CLUSTER_NAME,
    *,
    is_probe: bool = False,
) -> bool:
    """Returns whether the principal has the permission; logs a denial unless `is_probe`, which
    means that the request may still succeed without the permission."""
    authorizer = context.authorizer
    if authorizer is None:
        return True
    denied = _find_denied_names(context, authorizer, permission, [name])
    if denied and not is_probe:
        _log_denied(context, authorizer, permission, denied)
    return not denied


def is_allowed_on_any(context: "Context", permission: Permission) -> bool:
    """Returns whether the principal has the permission on any resource of this type."""
    authorizer = context.authorizer
    return authorizer is None or authorizer.authorize_any(
        context.principal, context.peer.host, permission
    )


def access_key(principal: str, host: str, version: int) -> bytes:
    """Returns bytes that differ between principals, hosts and versions of the ACLs. All have the
    same length, so appending them to client-chosen bytes is unambiguous."""
    return blake2b(repr((principal, host, version)).encode(), digest_size=16).digest()


def _log_denied(
    context: "Context", authorizer: Authorizer, permission: Permission, names: Iterable[str]
) -> None:
    log = None if context.router is None else context.router.security_log
    if log is None:
        return
    first, *others = sorted(names)
    need = Need(*permission, first)
    log.write(
        "authorization",
        context.peer,
        failed=True,
        principal=context.principal,
        operation=permission.operation.name,
        resource=f"{permission.resource_type.name}:{first}",
        others=str(len(others)) if others else "",
        rule=authorizer.describe_rule(context.principal, context.peer.host, need),
        api=API_VERSIONS[context.api_key].name,
    )


def permission_error(permission: Permission, name: str) -> Rejected:
    operation, resource_type = permission
    return Rejected(
        DENIED_CODE[resource_type],
        f"The principal lacks the permission {operation.name.upper()} on"
        f" {resource_type.name.upper()} '{name}'.",
    )


def authorized_operations(
    context: "Context", resource_type: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """Returns the operations that the principal may perform: bit n stands for operation n."""
    authorizer = context.authorizer
    if authorizer is None:
        return ALL_OPERATIONS[resource_type]
    operations = OPERATIONS[resource_type]
    needs = [Need(operation, resource_type, name) for operation in operations]
    results = authorizer.authorize(context.principal, context.peer.host, needs)
    return bit_field(
        operation for operation, allowed in zip(operations, results, strict=True) if allowed
    )


def _find_denied_names(
    context: "Context", authorizer: Authorizer, permission: Permission, names: list[str]
) -> frozenset[str]:
    """Returns the names that are denied."""
    needs = [Need(*permission, name) for name in names]
    results = authorizer.authorize(context.principal, context.peer.host, needs)
    return frozenset(name for name, allowed in zip(names, results, strict=True) if not allowed)
