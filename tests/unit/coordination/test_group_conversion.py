"""Conditions for converting classic groups to consumer groups."""

import pytest

from lograft.coordination.consumer_group import ConsumerGroup
from lograft.model.errors import ErrorCode
from lograft.wire.messages.join_group import JoinGroupResponse
from lograft.wire.records.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue,
)
from lograft.wire.records.consumer_group_metadata_key import ConsumerGroupMetadataKey
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from tests.unit.coordination.classic_client import ClassicConsumer
from tests.unit.coordination.consumer_client import Consumer, Shard


def classic_group(protocol: str, user_data: bytes | None) -> tuple[Shard, ClassicConsumer]:
    shard = Shard({"group.initial.rebalance.delay.ms": "0"})
    shard.create_topic("t", 2)
    member = ClassicConsumer(shard, "old")
    member.topics, member.protocols = ["t"], [protocol]
    for _ in range(2):  # first it gets its member id
        member.join()
        ((_, answer),) = shard.replies
        assert isinstance(answer, JoinGroupResponse)
        member.joined(answer)
    member.sync({member.member_id: {"t": [0, 1]}}, user_data)
    return shard, member


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_what_the_clients_assignors_add_is_for_them_alone(protocol: str) -> None:
    shard, _ = classic_group(protocol, b"sticky notes")
    assert Consumer(shard, "new").join(["t"]).error_code == 0
    assert isinstance(shard.shard.groups["g"], ConsumerGroup)


def test_what_an_unknown_assignor_adds_would_be_lost() -> None:
    shard, _ = classic_group("our-own", b"needed")
    answer = Consumer(shard, "new").join(["t"])
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "custom assignor" in str(answer.error_message)
    assert not shard.written
    shard, _ = classic_group("our-own", None)
    assert Consumer(shard, "new").join(["t"]).error_code == 0


def test_one_batch_ends_the_one_group_and_begins_the_other() -> None:
    shard, old = classic_group("range", None)
    Consumer(shard, "new").join(["t"])
    keys = [type(record.key) for record in shard.written]
    assert keys[0] is GroupMetadataKey
    assert shard.written[0].value is None
    values = [record.value for record in shard.written]
    (member,) = [
        value
        for value in values
        if isinstance(value, ConsumerGroupMemberMetadataValue) and value.classic_member_metadata
    ]
    assert member.classic_member_metadata is not None
    assert member.classic_member_metadata.session_timeout_ms == 10_000
    assert [protocol.name for protocol in member.classic_member_metadata.supported_protocols] == [
        "range"
    ]
    new = Consumer(shard, "new")
    new.leave()
    gone = [type(record.key) for record in shard.written if record.value is None]
    assert gone[-1] is ConsumerGroupMetadataKey
    assert type(shard.written[-1].key) is GroupMetadataKey
    assert shard.written[-1].value is not None
    old.beat()
