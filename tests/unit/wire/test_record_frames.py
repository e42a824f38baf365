"""The encoding of records in internal logs, against bytes that Kafka writes."""

from uuid import UUID

import pytest

from lograft.wire import record_frames as frames
from lograft.wire.errors import MalformedMessage
from lograft.wire.message import Message
from lograft.wire.records import index
from lograft.wire.records.end_txn_marker import EndTxnMarker
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from lograft.wire.records.kraft_version_record import KRaftVersionRecord
from lograft.wire.records.leader_change_message import LeaderChangeMessage, Voter
from lograft.wire.records.no_op_record import NoOpRecord
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue
from lograft.wire.records.topic_record import TopicRecord
from lograft.wire.records.transaction_log_key import TransactionLogKey

TOPIC_ID = UUID(int=0x11223344556677889900AABBCCDDEEFF)


def test_metadata_record_round_trip() -> None:
    record = TopicRecord(name="foo", topic_id=TOPIC_ID)
    data = frames.encode_record(record, 0)
    assert data == bytes.fromhex("01 02 00 04 666f6f 112233445566778899 00aabbccddeeff 00")
    assert frames.decode_record(data) == record
    assert frames.decode_record(memoryview(data)) == record


def test_every_metadata_record_has_its_class() -> None:
    for number, (module, name) in index.METADATA.items():
        assert name.endswith("Record")
        empty = frames.decode_record(bytes([1, number, 0x63]))
        assert empty == frames.UnknownRecord(number, 0x63, b""), module


def test_unknown_metadata_records_are_kept() -> None:
    data = b"\1\xff\1\3rest"
    assert frames.decode_record(data) == frames.UnknownRecord(255, 3, b"rest")


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\1\2", b"\1\2\0", b"\0\x14\0\0", b"\2\x14\0\0", b"\1\x14\0\0\0"]
)
def test_malformed_metadata_records_raise(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        frames.decode_record(data)


def test_no_op_is_four_bytes() -> None:
    assert frames.encode_record(NoOpRecord(), 0) == b"\1\x14\0\0"


def test_coordinator_records_round_trip() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    data = frames.encode_coordinator_key(key)
    assert data == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3"
    assert frames.decode_coordinator_key(frames.GROUPS, data) == key
    value = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=5)
    body = frames.encode_coordinator_value(value, 3)
    assert body[:2] == b"\0\3"
    assert frames.decode_coordinator_value(frames.GROUPS, key, body) == value
    late = frames.decode_coordinator_value(frames.GROUPS, key, b"\0\x63rest")
    assert late == frames.UnknownRecord(1, 99, b"rest")


def test_the_three_coordinators_have_separate_type_numbers() -> None:
    group = frames.encode_coordinator_key(GroupMetadataKey(group="g"))
    assert group[:2] == b"\0\2"
    assert frames.decode_coordinator_key(frames.TRANSACTIONS, group) == frames.UnknownRecord(
        2, 0, group[2:]
    )
    transaction = frames.encode_coordinator_key(TransactionLogKey(transactional_id="x"))
    assert transaction == b"\0\0\0\1x"
    decoded = frames.decode_coordinator_key(frames.TRANSACTIONS, transaction)
    assert decoded == TransactionLogKey(transactional_id="x")
    assert set(frames.SHARES.keys) == set(frames.SHARES.values) == {0, 1}
    with pytest.raises(MalformedMessage):
        frames.decode_coordinator_key(frames.GROUPS, b"\0")


def test_control_records_round_trip() -> None:
    assert frames.encode_control_key(frames.LEADER_CHANGE) == b"\0\0\0\2"
    assert frames.decode_control_key(b"\0\0\0\2") == frames.LEADER_CHANGE
    marker = EndTxnMarker(coordinator_epoch=7)
    data = frames.encode_control_value(frames.COMMIT_MARKER, marker)
    assert data == b"\0\0\0\0\0\7"
    assert frames.decode_control_value(frames.COMMIT_MARKER, data) == marker
    for change in (
        LeaderChangeMessage(version=0, leader_id=1, voters=[Voter(voter_id=1)]),
        LeaderChangeMessage(
            version=1, leader_id=1, voters=[Voter(voter_id=1, voter_directory_id=TOPIC_ID)]
        ),
    ):
        body = frames.encode_control_value(frames.LEADER_CHANGE, change)
        assert frames.decode_control_value(frames.LEADER_CHANGE, body) == change


@pytest.mark.parametrize(
    ("number", "message"),
    [(frames.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=1))],
)
def test_newer_control_records_are_read_as_the_known_version(number: int, message: Message) -> None:
    body = frames.encode_control_value(number, message)
    newer = b"\0\5" + body[2:-1] + b"\1\0\1x"
    read = frames.decode_control_value(number, newer)
    assert isinstance(read, KRaftVersionRecord)
    assert (read.version, read.kraft_version) == (5, 1)


def test_unknown_control_records_are_kept() -> None:
    assert frames.decode_control_value(99, b"\0\0x") == frames.UnknownRecord(99, 0, b"\0\0x")
    with pytest.raises(MalformedMessage):
        frames.decode_control_value(frames.LEADER_CHANGE, b"\0")
    with pytest.raises(MalformedMessage):
        frames.decode_control_key(b"\0\0\0")
