"""What the ACLs decide, computed by reading all of them: the model of the authorizer.

It shares no code with `lograft.security.standard_authorizer`, has no index and caches nothing."""

from collections.abc import Iterable

from lograft.security.acls import Acl
from lograft.security.authorization import Need, Operation

#: Numbers of Kafka's protocol.
LITERAL, PREFIXED = 3, 4
ALL = 2
DENY, ALLOW = 2, 3


def is_allowed(
    acls: Iterable[Acl], principal: str, host: str, need: Need, *, allow_if_no_acl: bool
) -> bool:
    """`allow_if_no_acl`: allow.everyone.if.no.acl.found."""
    of_resource = [acl for acl in acls if _is_for(acl, need)]
    if not of_resource:
        return allow_if_no_acl
    matching = [
        acl
        for acl in of_resource
        if acl.principal in (principal, "User:*") and acl.host in (host, "*")
    ]
    if any(acl.permission == DENY and acl.operation in (need.operation, ALL) for acl in matching):
        return False
    operations = {int(need.operation), ALL}
    if need.operation == Operation.DESCRIBE:
        operations |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    return any(acl.permission == ALLOW and acl.operation in operations for acl in matching)


def _is_for(acl: Acl, need: Need) -> bool:
    if acl.resource_type != need.resource_type:
        return False
    if acl.pattern_type == PREFIXED:
        return need.name.startswith(acl.name)
    return acl.pattern_type == LITERAL and acl.name in (need.name, "*")
