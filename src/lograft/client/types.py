"""Value types of the public API of the clients."""

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
    """The acknowledgement of a record: its offset, and what the acknowledgement guarantees.

    acknowledged = await producer.send("topic", b"value")
    print(acknowledged.partition, acknowledged.offset, acknowledged.meaning)
    """

    topic: str
    partition: int
    #: -1 with acks=0, because brokers do not respond.
    offset: int
    #: The timestamp of the record, or of the broker in a topic with LogAppendTime.
    timestamp_ms: int
    #: 0, 1 or -1 (all).
    acks: int

    @property
    def meaning(self) -> str:
        return {
            0: "sent; the broker did not confirm it",
            1: "in the leader's log; lost if the leader fails before a follower fetches it",
        }.get(self.acks, "in the logs of all in-sync replicas")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of consecutive records.

    import pyarrow as pa

    (written,) = await producer.send_arrow("topic", pa.table({"value": [b"a", b"b"]}), partition=0)
    assert written.count == 2
    """

    topic: str
    partition: int
    #: -1 with acks=0, because brokers do not respond.
    first_offset: int
    count: int


class ConsumerRecord(NamedTuple):
    """A record that a consumer received.

    for partition, records in (await consumer.poll(timeout_ms=0)).items():
        print(partition, [record.value for record in records])
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    #: Bytes, or the result of the key deserializer; None if the record has no key.
    key: Any
    #: Bytes, or the result of the value deserializer; None for a tombstone.
    value: Any
    headers: Sequence[tuple[str, bytes | None]] = ()
    #: The leader epoch in which it was written; -1 if unknown.
    leader_epoch: int = -1
    #: 0: CreateTime, set by the producer; 1: LogAppendTime, set by the broker.
    timestamp_type: int = 0


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is that of the next record to read, and its metadata.

    committed = OffsetAndMetadata(7, "stopped at a corrupt record")
    await consumer.commit({TopicPartition("topic", 0): committed})
    """

    offset: int
    metadata: str = ""
    #: The leader epoch of the record before `offset`; -1 if unknown.
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """The identity of a consumer in its group. A producer needs it to commit the consumer's offsets
    in a transaction; the coordinator rejects it if the consumer is no longer a member.

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
    """The offset and timestamp of the first record at or after a time.

    partition = TopicPartition("topic", 0)
    found = (await consumer.offsets_for_times({partition: 0}))[partition]
    assert found is None or found.offset == 0
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class PartitionInfo(NamedTuple):
    """A partition and its replicas.

    topic = await consumer.partitions_for("topic")
    print([partition.leader for partition in topic.partitions])
    """

    partition: int
    #: -1 if it has no leader.
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


class BrokerInfo(NamedTuple):
    """A broker in a client's metadata; see `ClusterView`.

    assert BrokerInfo(1, "localhost", 9092).rack is None
    """

    broker: int
    host: str
    port: int
    rack: str | None = None


class TopicInfo(NamedTuple):
    """A topic in a client's metadata.

    topic = await consumer.partitions_for("topic")
    print(topic.id, len(topic.partitions))
    """

    name: str
    #: All zeroes if the broker is too old to return it.
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
