"""Types of the numbers and identifiers that all rooms use.

The NewTypes have no cost at run time and let mypy reject an epoch in place of an offset.
"""

from enum import IntEnum
from typing import Final, NamedTuple, NewType
from uuid import UUID

#: Position of a record in a partition's log; contiguous, starts at 0.
Offset = NewType("Offset", int)
#: Number of a leadership of a partition (or of the metadata quorum); only increases.
Epoch = NewType("Epoch", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)
#: Fences older instances of a producer; 16 bits on the wire.
ProducerEpoch = NewType("ProducerEpoch", int)
#: Identifies a registration of a broker: the offset of its RegisterBrokerRecord.
BrokerEpoch = NewType("BrokerEpoch", int)

NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = Epoch(-1)
NO_NODE: Final = NodeId(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

ZERO_UUID: Final = UUID(int=0)
#: Topic id of ``__cluster_metadata``: fixed by the protocol.
METADATA_TOPIC_ID: Final = UUID(int=1)
METADATA_TOPIC: Final = "__cluster_metadata"
#: The logs of the coordinators.
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
#: Internal topics of the brokers: clients may read them, but not write to them.
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"))


class ReplicationMode(IntEnum):
    """How a partition is replicated; the numbers are those of its metadata records. A partition
    passes through them in this order and may fall back from `entering` to `isr`."""

    ISR = 0
    #: Still ISR's rules, but everything is fsynced, so that a majority has it on disk.
    ENTERING = 1
    RAFT = 2
    #: Raft has ended; ISR's rules apply again when enough replicas have the most complete log of a
    #: majority.
    LEAVING = 3

    @property
    def text(self) -> str:
        """The value of the setting `replication.mode`."""
        return self.name.lower()


class ResetAction(IntEnum):
    """The action that an OffsetCommit requests (`reset_action`); the numbers are those on the
    wire."""

    #: An ordinary commit.
    NONE = 0
    RESET = 1
    UNDO = 2


#: Resets have this generation and no member id: Kafka, and any server that ignores the action,
#: rejects them (UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND) and commits nothing.
RESET_GENERATION: Final = 0


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int
