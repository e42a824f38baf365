"""Output of `lograft acls`, and the ACLs that its options describe."""

from collections.abc import Iterable

from lograft.cli.output import table
from lograft.model.errors import InvalidInput
from lograft.security.acls import (
    ALL_OPERATIONS,
    Acl,
    AclFilter,
    AclPermission,
    PatternType,
    name_of_number,
    operation_name,
)
from lograft.security.authorization import CLUSTER_NAME, Need, Operation, ResourceType
from lograft.security.standard_authorizer import Rule, RuleKind


def filter_of(
    topic: str | None, group: str | None, transactional_id: str | None, *, cluster: bool
) -> AclFilter:
    """Returns a filter for the ACLs that apply to the resource; without one, for all."""
    if cluster or any(name is not None for name in (topic, group, transactional_id)):
        resource_type, name = resource_of(topic, group, transactional_id, cluster=cluster)
        return AclFilter(resource_type, name, PatternType.MATCH)
    return AclFilter()


def resource_of(
    topic: str | None, group: str | None, transactional_id: str | None, *, cluster: bool
) -> tuple[ResourceType, str]:
    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise InvalidInput("name one resource: --topic, --group, --transactional-id or --cluster")
    return given[0]


def operation_of(name: str) -> int:
    return ALL_OPERATIONS if name.upper() == "ALL" else needed_operation(name)


def needed_operation(name: str) -> Operation:
    """Accepts the names of Kafka's tools and of its protocol: DescribeConfigs, DESCRIBE_CONFIGS."""
    wanted = name.replace("_", "").replace("-", "").upper()
    for operation in Operation:
        if operation.name.replace("_", "") == wanted:
            return operation
    known = ", ".join(_title(operation.name) for operation in Operation)
    raise InvalidInput(f"there is no operation {name}: use one of {known}")


def _title(name: str) -> str:
    return "".join(part.title() for part in name.split("_"))


def values_of(acl: Acl) -> dict[str, str]:
    return {
        "permission": name_of_number(AclPermission, acl.permission),
        "principal": acl.principal,
        "operation": operation_name(acl.operation),
        "resource_type": name_of_number(ResourceType, acl.resource_type),
        "pattern_type": name_of_number(PatternType, acl.pattern_type),
        "name": acl.name,
        "host": acl.host,
    }


def list_lines(acls: Iterable[Acl]) -> list[str]:
    rows = [tuple(values_of(acl).values()) for acl in acls]
    if not rows:
        return ["No ACLs match."]
    head = ["PERMISSION", "PRINCIPAL", "OPERATION", "RESOURCE", "PATTERN", "NAME", "HOST"]
    return table(head, rows)


def explanation(principal: str, need: Need, host: str, rule: Rule) -> str:
    verdict = "may" if rule.is_allowed else "may not"
    if rule.acl is not None:
        reason = f"because of the ACL {rule}"
    elif rule.kind is RuleKind.NO_MATCH:
        reason = "because the resource has ACLs, but none for this principal and operation"
    else:
        reason = (
            "because the resource has no ACLs; this changes if allow.everyone.if.no.acl.found is"
            " true"
        )
    exception = "" if rule.is_allowed else " A principal in super.users may do everything."
    return (
        f"{principal} {verdict} perform {_title(need.operation.name)} on"
        f" {need.resource_type.name} {need.name} from {host}, {reason}.{exception}"
    )
