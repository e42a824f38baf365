"""Offsets as records, in the versions that Kafka writes."""

from typing import Final
from uuid import UUID

from lograft.coordination.offset_table import OffsetBeforeReset, OffsetTable
from lograft.coordination.types import Record
from lograft.model.types import NO_TIMESTAMP, ZERO_UUID
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue

VALUE_VERSION: Final = 4
#: The only version with an expiry timestamp, which clients from before Kafka 2.1 set. It has no
#: fields for the offset before a reset, so such a commit makes an undo impossible.
EXPIRING_VALUE_VERSION: Final = 1


def offset_record(
    group_id: str,
    topic: str,
    partition: int,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str | None,
    commit_ms: int,
    expire_ms: int = NO_TIMESTAMP,
    topic_id: UUID = ZERO_UUID,
    before: OffsetBeforeReset | None = None,
) -> Record:
    """`before` describes the committed offset before its last reset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata or "",
        commit_timestamp=commit_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    if expire_ms != NO_TIMESTAMP:
        return Record(key, value, EXPIRING_VALUE_VERSION)
    if before is not None:
        value.reset_timestamp = before.reset_ms
        value.offset_before_reset = before.offset
        value.leader_epoch_before_reset = before.leader_epoch
        value.metadata_before_reset = before.metadata
    return Record(key, value, VALUE_VERSION)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def offset_tombstones(table: OffsetTable, group_id: str) -> list[Record]:
    """Tombstones for all offsets of a group, including those of open transactions."""
    places = {
        (topic, partition): None
        for topic, partitions in table.of(group_id).items()
        for partition in partitions
    }
    places.update(dict.fromkeys(table.pending_partitions(group_id)))
    return [offset_tombstone(group_id, topic, partition) for topic, partition in places]
