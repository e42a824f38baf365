"""The offset commits of groups, as records of `__consumer_offsets`."""

from typing import NamedTuple

from lograft.wire.record_frames import (
    GROUPS,
    decode_coordinator_key,
    decode_coordinator_value,
)
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue


class OffsetCommit(NamedTuple):
    """An offset commit of a group, as a record of `__consumer_offsets` contains it."""

    group: str
    topic: str
    partition: int
    offset: int
    #: By the coordinator's clock.
    timestamp_ms: int


def parse_offset_commit(key: bytes | None, value: bytes | None) -> OffsetCommit | None:
    """Parses a record of `__consumer_offsets`. Returns None if it is a tombstone or not an offset
    commit.

    consumer.assign([TopicPartition("__consumer_offsets", 0)])
    consumer.seek_to_beginning()
    for records in (await consumer.poll(timeout_ms=100)).values():
        for record in records:
            commit: OffsetCommit | None = parse_offset_commit(record.key, record.value)
            print(commit)
    """
    if key is None or value is None:
        return None
    record_key = decode_coordinator_key(GROUPS, key)
    if not isinstance(record_key, OffsetCommitKey):
        return None
    commit = decode_coordinator_value(GROUPS, record_key, value)
    if not isinstance(commit, OffsetCommitValue):
        return None
    return OffsetCommit(
        record_key.group,
        record_key.topic,
        record_key.partition,
        commit.offset,
        commit.commit_timestamp,
    )
