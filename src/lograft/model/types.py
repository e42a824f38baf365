"""Names for the numbers and things that every room talks about.

The NewTypes cost nothing at run time and let mypy refuse an epoch where an offset is meant.
"""

from enum import IntEnum
from typing import Final, NamedTuple, NewType
from uuid import UUID

#: Position of a record in a partition's log; dense, starts at 0.
Offset = NewType("Offset", int)
#: Counts the leaders of a partition (or of the metadata quorum); only ever grows.
Epoch = NewType("Epoch", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)
#: Fences older incarnations of one producer id; 16 bits on the wire.
ProducerEpoch = NewType("ProducerEpoch", int)
#: Names one registration of a broker: the offset of its RegisterBrokerRecord.
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
#: Topics that the brokers keep for themselves: clients may read them, not write them.
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"))


class ReplicationMode(IntEnum):
    """How a partition is replicated; the numbers are those of its metadata records. A partition
    goes round in this order and may fall back from `entering` to `isr`."""

    ISR = 0
    #: Still ISR's rules, but everything is fsynced, so that a majority has it on disk.
    ENTERING = 1
    RAFT = 2
    #: Raft has ended; ISR's rules begin when enough replicas hold the best log of a majority.
    LEAVING = 3

    @property
    def text(self) -> str:
        """As in the setting `replication.mode`."""
        return self.name.lower()


class ResetAction(IntEnum):
    """What an OffsetCommit asks for (`reset_action`); the numbers are those on the wire."""

    #: A commit like any other.
    NONE = 0
    RESET = 1
    UNDO = 2


#: The generation that resets name, without a member: Kafka, and whoever else steps over the action,
#: refuses it (UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND) and commits nothing.
RESET_GENERATION: Final = 0


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int
