"""What clients give and take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from lograft.model.types import TopicPartition

__all__ = [
    "Acknowledged",
    "ConsumerRecord",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "PartitionInfo",
    "TopicInfo",
    "TopicPartition",
]


class Acknowledged(NamedTuple):
    """Where a record is, and what the broker's acknowledgement promises.

    acknowledged = await producer.send("topic", b"value")
    print(acknowledged.partition, acknowledged.offset, acknowledged.meaning)
    """

    topic: str
    partition: int
    #: -1 with acks=0: nobody has said anything.
    offset: int
    #: The record's own time, or the broker's where the topic says LogAppendTime.
    timestamp_ms: int
    #: 0, 1 or -1 (all).
    acks: int

    @property
    def meaning(self) -> str:
        return {
            0: "sent; nobody has said that it arrived",
            1: "in the leader's log; lost if the leader is lost before others have it",
        }.get(self.acks, "in the log of every replica in sync")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Where records are that follow each other.

    import pyarrow as pa

    (written,) = await producer.send_arrow("topic", pa.table({"value": [b"a", b"b"]}), partition=0)
    assert written.count == 2
    """

    topic: str
    partition: int
    #: -1 with acks=0: nobody has said anything.
    first_offset: int
    count: int


class ConsumerRecord(NamedTuple):
    """A record as a consumer gets it.

    for partition, records in (await consumer.poll(timeout_ms=0)).items():
        print(partition, [record.value for record in records])
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    #: Bytes, or what the key deserializer made of them; None where the record has none.
    key: Any
    #: Bytes, or what the value deserializer made of them; None is a tombstone.
    value: Any
    headers: Sequence[tuple[str, bytes | None]] = ()
    #: Of the leader that wrote it; -1 where that is not known.
    leader_epoch: int = -1
    #: 0: given by the producer; 1: by the broker that appended it.
    timestamp_type: int = 0


class OffsetAndMetadata(NamedTuple):
    """What a group has committed for a partition: the next record to read, and a note.

    done = OffsetAndMetadata(7, "up to the broken one")
    await consumer.commit({TopicPartition("topic", 0): done})
    """

    offset: int
    metadata: str = ""
    #: Of the record before `offset`; -1 where that is not known.
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group: with it a producer commits the consumer's offsets in a
    transaction, and a member that the group has gone on without is refused.

        group = consumer.group_metadata()
        async with transactional.transaction():
            await transactional.send_offsets({TopicPartition("topic", 0): 1}, group)
    """

    group_id: str
    #: Generation of a classic group, member epoch of the new protocol; -1: not a member.
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time.

    partition = TopicPartition("topic", 0)
    found = (await consumer.offsets_for_times({partition: 0}))[partition]
    assert found is None or found.offset == 0
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class PartitionInfo(NamedTuple):
    """A partition, and who has it.

    topic = await consumer.partitions_for("topic")
    print([partition.leader for partition in topic.partitions])
    """

    partition: int
    #: -1 while there is none.
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


class BrokerInfo(NamedTuple):
    """A broker as a client sees it; see `ClusterView`.

    assert BrokerInfo(1, "localhost", 9092).rack is None
    """

    broker: int
    host: str
    port: int
    rack: str | None = None


class TopicInfo(NamedTuple):
    """A topic as a client sees it.

    topic = await consumer.partitions_for("topic")
    print(topic.id, len(topic.partitions))
    """

    name: str
    #: All zeroes where the broker is too old to tell.
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
