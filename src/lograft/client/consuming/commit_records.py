"""What groups have committed and when, as the records of `__consumer_offsets` tell it."""

from typing import NamedTuple

from lograft.wire.record_frames import (
    GROUPS,
    decode_coordinator_key,
    decode_coordinator_value,
)
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue


class Commit(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    #: By the coordinator's clock.
    timestamp_ms: int


def read_commit(key: bytes | None, value: bytes | None) -> Commit | None:
    """None: the record is about something else, or takes a commit away."""
    if key is None or value is None:
        return None
    what = decode_coordinator_key(GROUPS, key)
    if not isinstance(what, OffsetCommitKey):
        return None
    committed = decode_coordinator_value(GROUPS, what, value)
    if not isinstance(committed, OffsetCommitValue):
        return None
    return Commit(
        what.group, what.topic, what.partition, committed.offset, committed.commit_timestamp
    )
