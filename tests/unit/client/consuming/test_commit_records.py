import pytest

from lograft.client.consuming.commit_records import Commit, read_commit
from lograft.wire.message import Message
from lograft.wire.record_frames import encode_coordinator_key, encode_coordinator_value
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue

KEY = OffsetCommitKey(group="g", topic="t", partition=3)
VALUE = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=1_700)


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version(version: int) -> None:
    key, value = encode_coordinator_key(KEY), encode_coordinator_value(VALUE, version)
    assert read_commit(key, value) == Commit("g", "t", 3, 7, 1_700)


@pytest.mark.parametrize("key", [KEY, GroupMetadataKey(group="g")])
def test_what_is_no_commit(key: Message) -> None:
    data = encode_coordinator_key(key)
    assert read_commit(data, None) is None
    assert read_commit(None, b"x") is None
    if key is not KEY:
        assert read_commit(data, b"\x00\x03") is None


def test_a_version_of_later_times_is_passed_over() -> None:
    assert read_commit(encode_coordinator_key(KEY), b"\x00\x63rest") is None
