"""Offset commits are parsed from records of `__consumer_offsets`."""

import pytest

from lograft.client.consuming.commit_records import OffsetCommit, parse_offset_commit
from lograft.wire.message import Message
from lograft.wire.record_frames import encode_coordinator_key, encode_coordinator_value
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue

KEY = OffsetCommitKey(group="g", topic="t", partition=3)
VALUE = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=1_700)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_commit_is_parsed(version: int) -> None:
    key, value = encode_coordinator_key(KEY), encode_coordinator_value(VALUE, version)
    assert parse_offset_commit(key, value) == OffsetCommit("g", "t", 3, 7, 1_700)


@pytest.mark.parametrize("key", [KEY, GroupMetadataKey(group="g")])
def test_records_that_are_not_commits_are_ignored(key: Message) -> None:
    data = encode_coordinator_key(key)
    assert parse_offset_commit(data, None) is None
    assert parse_offset_commit(None, b"x") is None
    if key is not KEY:
        assert parse_offset_commit(data, b"\x00\x03") is None


def test_a_later_version_is_ignored() -> None:
    assert parse_offset_commit(encode_coordinator_key(KEY), b"\x00\x63rest") is None
