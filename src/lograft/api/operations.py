"""What may be done to a topic, a group or the cluster, as the bit fields of Metadata and its like.

Bit n stands for Kafka's ACL operation n.
"""

from typing import Final

READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12


def bit_field(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


#: Everything that exists: without an authorizer everything is allowed.
TOPIC_OPERATIONS: Final = bit_field(
    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
)
GROUP_OPERATIONS: Final = bit_field(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = bit_field(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
