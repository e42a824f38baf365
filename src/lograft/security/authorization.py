"""Permissions that requests need: operations on resources, and the Authorizer protocol.

Values only. The numbers are those of Kafka's ACLs. Each `api/<name>.py` declares what its API
needs; the router and the handlers call an `Authorizer`.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


#: The only resource of type cluster.
CLUSTER_NAME: Final = "kafka-cluster"


class Permission(NamedTuple):
    """An operation on resources of one type."""

    operation: Operation
    resource_type: ResourceType


class Need(NamedTuple):
    """An operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str


class Authorizer(Protocol):
    """Decides what a principal may do. Both methods return immediately; they raise only
    `AuthorizerNotReady`, before the ACLs are loaded."""

    @property
    def version(self) -> int:
        """Returns a number that changes whenever decisions may change."""

    def authorize(self, principal: str, host: str, needs: Sequence[Need]) -> Sequence[bool]:
        """Returns whether each need is met, in order. `principal` as in an ACL: "User:alice";
        `host` is the address from which the request was sent."""

    def authorize_any(self, principal: str, host: str, permission: Permission) -> bool:
        """Returns whether there may be a resource of this type on which the operation is
        allowed."""

    def describe_rule(self, principal: str, host: str, need: Need) -> str:
        """Returns the rule that decides, for the security log."""


TOPIC_READ: Final = Permission(Operation.READ, ResourceType.TOPIC)
TOPIC_WRITE: Final = Permission(Operation.WRITE, ResourceType.TOPIC)
TOPIC_CREATE: Final = Permission(Operation.CREATE, ResourceType.TOPIC)
TOPIC_DELETE: Final = Permission(Operation.DELETE, ResourceType.TOPIC)
TOPIC_ALTER: Final = Permission(Operation.ALTER, ResourceType.TOPIC)
TOPIC_DESCRIBE: Final = Permission(Operation.DESCRIBE, ResourceType.TOPIC)
TOPIC_DESCRIBE_CONFIGS: Final = Permission(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
TOPIC_ALTER_CONFIGS: Final = Permission(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
GROUP_READ: Final = Permission(Operation.READ, ResourceType.GROUP)
GROUP_DELETE: Final = Permission(Operation.DELETE, ResourceType.GROUP)
GROUP_DESCRIBE: Final = Permission(Operation.DESCRIBE, ResourceType.GROUP)
GROUP_DESCRIBE_CONFIGS: Final = Permission(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
GROUP_ALTER_CONFIGS: Final = Permission(Operation.ALTER_CONFIGS, ResourceType.GROUP)
CLUSTER_CREATE: Final = Permission(Operation.CREATE, ResourceType.CLUSTER)
CLUSTER_ALTER: Final = Permission(Operation.ALTER, ResourceType.CLUSTER)
CLUSTER_DESCRIBE: Final = Permission(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Permission(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
CLUSTER_DESCRIBE_CONFIGS: Final = Permission(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
CLUSTER_ALTER_CONFIGS: Final = Permission(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
CLUSTER_IDEMPOTENT_WRITE: Final = Permission(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
TRANSACTIONAL_ID_WRITE: Final = Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
TRANSACTIONAL_ID_DESCRIBE: Final = Permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
TRANSACTIONAL_ID_TWO_PHASE_COMMIT: Final = Permission(
    Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID
)
DELEGATION_TOKEN_DESCRIBE: Final = Permission(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
USER_CREATE_TOKENS: Final = Permission(Operation.CREATE_TOKENS, ResourceType.USER)
USER_DESCRIBE_TOKENS: Final = Permission(Operation.DESCRIBE_TOKENS, ResourceType.USER)
