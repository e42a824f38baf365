"""Permissions that requests need: operations on resources, and the Authorizer protocol.

Values only. The numbers are those of Kafka's ACLs. Each `api/<name>.py` declares what its API
needs; the router and the handlers call an `Authorizer`.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol


class Operation(IntEnum):
    read = 3
    write = 4
    create = 5
    delete = 6
    alter = 7
    describe = 8
    cluster_action = 9
    describe_configs = 10
    alter_configs = 11
    idempotent_write = 12
    create_tokens = 13
    describe_tokens = 14
    two_phase_commit = 15


class ResourceType(IntEnum):
    topic = 2
    group = 3
    cluster = 4
    transactional_id = 5
    delegation_token = 6
    user = 7


#: There is one resource of type cluster, and this is its name.
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
    """Decides what a principal may do. Both methods return immediately and never raise."""

    def authorize(self, principal: str, host: str, needs: Sequence[Need]) -> Sequence[bool]:
        """Whether each need is met, in their order. `principal` as in an ACL: "User:alice";
        `host` is the address that the request came from."""

    def authorize_any(self, principal: str, host: str, permission: Permission) -> bool:
        """Whether there may be a resource of this type on which the operation is allowed."""


TOPIC_READ: Final = Permission(Operation.read, ResourceType.topic)
TOPIC_WRITE: Final = Permission(Operation.write, ResourceType.topic)
TOPIC_CREATE: Final = Permission(Operation.create, ResourceType.topic)
TOPIC_DELETE: Final = Permission(Operation.delete, ResourceType.topic)
TOPIC_ALTER: Final = Permission(Operation.alter, ResourceType.topic)
TOPIC_DESCRIBE: Final = Permission(Operation.describe, ResourceType.topic)
TOPIC_DESCRIBE_CONFIGS: Final = Permission(Operation.describe_configs, ResourceType.topic)
TOPIC_ALTER_CONFIGS: Final = Permission(Operation.alter_configs, ResourceType.topic)
GROUP_READ: Final = Permission(Operation.read, ResourceType.group)
GROUP_DELETE: Final = Permission(Operation.delete, ResourceType.group)
GROUP_DESCRIBE: Final = Permission(Operation.describe, ResourceType.group)
GROUP_DESCRIBE_CONFIGS: Final = Permission(Operation.describe_configs, ResourceType.group)
GROUP_ALTER_CONFIGS: Final = Permission(Operation.alter_configs, ResourceType.group)
CLUSTER_CREATE: Final = Permission(Operation.create, ResourceType.cluster)
CLUSTER_ALTER: Final = Permission(Operation.alter, ResourceType.cluster)
CLUSTER_DESCRIBE: Final = Permission(Operation.describe, ResourceType.cluster)
CLUSTER_ACTION: Final = Permission(Operation.cluster_action, ResourceType.cluster)
CLUSTER_DESCRIBE_CONFIGS: Final = Permission(Operation.describe_configs, ResourceType.cluster)
CLUSTER_ALTER_CONFIGS: Final = Permission(Operation.alter_configs, ResourceType.cluster)
CLUSTER_IDEMPOTENT_WRITE: Final = Permission(Operation.idempotent_write, ResourceType.cluster)
TRANSACTIONAL_ID_WRITE: Final = Permission(Operation.write, ResourceType.transactional_id)
TRANSACTIONAL_ID_DESCRIBE: Final = Permission(Operation.describe, ResourceType.transactional_id)
TRANSACTIONAL_ID_TWO_PHASE_COMMIT: Final = Permission(
    Operation.two_phase_commit, ResourceType.transactional_id
)
DELEGATION_TOKEN_DESCRIBE: Final = Permission(Operation.describe, ResourceType.delegation_token)
USER_CREATE_TOKENS: Final = Permission(Operation.create_tokens, ResourceType.user)
USER_DESCRIBE_TOKENS: Final = Permission(Operation.describe_tokens, ResourceType.user)
