"""Share groups and streams groups that Kafka left in the log are kept, and their ids reserved."""

import pytest

from lograft.coordination.classic_member import Client
from lograft.coordination.consumer_describe import describe
from lograft.coordination.consumer_heartbeat import heartbeat
from lograft.coordination.group_listing import delete_group, describe_group, list_groups
from lograft.coordination.group_shard import GROUPS
from lograft.coordination.offset_commands import (
    commit_offsets,
    commit_transactional_offsets,
    delete_offsets,
)
from lograft.coordination.offset_fetch import fetch_offsets
from lograft.coordination.offset_records import offset_record
from lograft.coordination.offset_reset import reset_offsets
from lograft.coordination.types import CoordinatorResult, Record
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import gather_all
from lograft.model.types import RESET_GENERATION, ResetAction
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_describe import DescribedGroup as ConsumerDescription
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.messages.describe_groups import DescribedGroup
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.join_group import JoinGroupResponse
from lograft.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lograft.wire.messages.list_groups import ListGroupsResponse
from lograft.wire.messages.offset_commit import OffsetCommitRequest
from lograft.wire.messages.offset_delete import OffsetDeleteRequest
from lograft.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from lograft.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from lograft.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from lograft.wire.records.legacy_offset_commit_key import LegacyOffsetCommitKey
from lograft.wire.records.legacy_offset_commit_value import LegacyOffsetCommitValue
from lograft.wire.records.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from lograft.wire.records.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from lograft.wire.records.share_group_metadata_key import ShareGroupMetadataKey
from lograft.wire.records.share_group_metadata_value import ShareGroupMetadataValue
from lograft.wire.records.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from lograft.wire.records.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from lograft.wire.records.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from lograft.wire.records.streams_group_member_metadata_value import (
    StreamsGroupMemberMetadataValue,
)
from lograft.wire.records.streams_group_metadata_key import StreamsGroupMetadataKey
from lograft.wire.records.streams_group_metadata_value import StreamsGroupMetadataValue
from lograft.wire.records.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from lograft.wire.records.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from lograft.wire.records.streams_group_topology_key import StreamsGroupTopologyKey
from lograft.wire.records.streams_group_topology_value import StreamsGroupTopologyValue
from tests.unit.api.groups_bench import join_request
from tests.unit.coordination.consumer_client import Consumer, Shard

CLIENT = Client(client_id="c", host="/h", api_version=9)
WEEK_MS = 7 * 24 * 60 * 60 * 1000
UNSERVED = ("share", "share-empty", "streams", "streams-empty")


def share_records(group_id: str, *members: str) -> list[Record]:
    return [
        *(
            Record(
                ShareGroupMemberMetadataKey(group_id=group_id, member_id=member),
                ShareGroupMemberMetadataValue(subscribed_topic_names=["t"]),
            )
            for member in members
        ),
        Record(ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=2)),
    ]


def streams_records(group_id: str, *members: str) -> list[Record]:
    return [
        *(
            Record(
                StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member),
                StreamsGroupMemberMetadataValue(process_id="p", client_id="c", client_host="/h"),
            )
            for member in members
        ),
        Record(
            StreamsGroupMetadataKey(group_id=group_id),
            StreamsGroupMetadataValue(epoch=3, validated_topology_epoch=1),
        ),
        Record(StreamsGroupTopologyKey(group_id=group_id), StreamsGroupTopologyValue(epoch=1)),
    ]


def kafkas_shard() -> Shard:
    """After a classic group and share and streams groups, each with and without a member."""
    shard = Shard({"group.initial.rebalance.delay.ms": "0", "offsets.retention.minutes": "1"})
    shard.create_topic("t", 2)
    offset = offset_record("streams", "t", 0, offset=5, leader_epoch=0, metadata="", commit_ms=0)
    plain = offset_record("plain", "t", 0, offset=6, leader_epoch=0, metadata="", commit_ms=0)
    shard.run(
        CoordinatorResult(
            records=[
                # Compaction may leave a group's offsets before its own records.
                offset,
                plain,
                *share_records("share", "m"),
                *share_records("share-empty"),
                *streams_records("streams", "m"),
                *streams_records("streams-empty"),
            ]
        )
    )
    shard.fail_over()
    return shard


def listed(shard: Shard, *types: str) -> dict[str, tuple[str, str, str]]:
    shard.ask("list", lambda at, ticket, _: list_groups(at, ticket, states=(), types=types))
    ((_, answer),) = shard.replies
    assert isinstance(answer, ListGroupsResponse)
    return {
        group.group_id: (group.group_type, group.group_state, group.protocol_type)
        for group in answer.groups
    }


def reply(shard: Shard) -> Message:
    ((_, answer),) = shard.replies
    assert not shard.written
    return answer


def test_they_are_listed_with_their_type_and_state() -> None:
    shard = kafkas_shard()
    assert listed(shard) == {
        "share": ("share", "Stable", "share"),
        "share-empty": ("share", "Empty", "share"),
        "streams": ("streams", "Assigning", "streams"),
        "streams-empty": ("streams", "Empty", "streams"),
        "plain": ("classic", "Empty", ""),
    }
    assert set(listed(shard, "share")) == {"share", "share-empty"}


def test_the_state_of_a_streams_group_follows_its_records() -> None:
    shard = kafkas_shard()
    target = StreamsGroupTargetAssignmentMetadataKey(group_id="streams")
    current = StreamsGroupCurrentMemberAssignmentKey(group_id="streams", member_id="m")
    topology = StreamsGroupTopologyKey(group_id="streams")
    for record, state in (
        (Record(target, StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=3)),
         "Reconciling"),
        (Record(current, StreamsGroupCurrentMemberAssignmentValue(member_epoch=3, state=2)),
         "Reconciling"),
        (Record(current, StreamsGroupCurrentMemberAssignmentValue(member_epoch=3, state=1)),
         "Stable"),
        (Record(topology, StreamsGroupTopologyValue(epoch=2)), "NotReady"),
    ):  # fmt: skip
        shard.run(CoordinatorResult(records=[record]))
        assert listed(shard)["streams"][1] == state


@pytest.mark.parametrize("group_id", UNSERVED)
def test_nobody_joins_under_such_an_id(group_id: str) -> None:
    shard = kafkas_shard()
    request = join_request(group=group_id)
    shard.ask("join", lambda at, ticket, now: at.classic.join(request, CLIENT, ticket, now))
    joined = reply(shard)
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for epoch in (0, 1, -1):
        beat.member_epoch = epoch
        shard.ask("beat", lambda at, ticket, now: heartbeat(at.consumer, beat, CLIENT, ticket, now))
        beaten = reply(shard)
        assert isinstance(beaten, ConsumerGroupHeartbeatResponse)
        assert beaten.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert beaten.error_message == f"Group {group_id} is not a consumer group."


@pytest.mark.parametrize("group_id", UNSERVED)
def test_classic_members_are_unknown(group_id: str) -> None:
    shard = kafkas_shard()
    sync = SyncGroupRequest(group_id=group_id, generation_id=1, member_id="m")
    shard.ask("sync", lambda at, ticket, now: at.classic.sync(sync, ticket, now))
    answer = reply(shard)
    assert isinstance(answer, SyncGroupResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    beat = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
    shard.ask("beat", lambda at, ticket, now: at.classic.heartbeat(beat, ticket, now))
    beaten = reply(shard)
    assert isinstance(beaten, HeartbeatResponse)
    assert beaten.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leave = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="m")])
    shard.ask("leave", lambda at, ticket, now: at.classic.leave(leave, ticket, now))
    left = reply(shard)
    assert isinstance(left, LeaveGroupResponse)
    assert [member.error_code for member in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("group_id", UNSERVED)
def test_nothing_is_committed_reset_or_deleted_under_such_an_id(group_id: str) -> None:
    shard = kafkas_shard()
    commit = OffsetCommitRequest(
        group_id=group_id, member_id="", generation_id_or_member_epoch=RESET_GENERATION
    )
    reset = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=RESET_GENERATION,
        reset_action=ResetAction.RESET,
    )
    in_transaction = TxnOffsetCommitRequest(group_id=group_id, generation_id=-1)
    deletion = OffsetDeleteRequest(group_id=group_id)
    for decide in (
        lambda at, ticket, now: commit_offsets(at, commit, ticket, now_ms=now, api_version=9),
        lambda at, ticket, now: commit_transactional_offsets(
            at, in_transaction, ticket, api_version=4
        ),
        lambda at, ticket, now: delete_offsets(at, deletion, ticket),
        lambda at, ticket, now: reset_offsets(at, reset, ticket, now),
    ):
        with pytest.raises(Rejected) as refused:
            shard.ask("change", decide)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert not shard.written
    with pytest.raises(Rejected) as refused:
        shard.ask("delete", lambda at, ticket, now: delete_group(at, ticket, group_id))
    assert refused.value.code is (
        ErrorCode.UNSUPPORTED_VERSION if group_id.endswith("empty") else ErrorCode.NON_EMPTY_GROUP
    )


def test_describing_says_that_they_have_another_type() -> None:
    shard = kafkas_shard()
    shard.ask("describe", lambda at, ticket, _: describe_group(at, ticket, "share"))
    classic = reply(shard)
    assert isinstance(classic, DescribedGroup)
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == "Group share is not a classic group."
    shard.ask("describe", lambda at, ticket, _: describe(at.consumer, "share", ticket))
    consumer = reply(shard)
    assert isinstance(consumer, ConsumerDescription)
    assert consumer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert consumer.error_message == "Group share is not a consumer group."


def test_their_offsets_can_be_read_and_do_not_expire() -> None:
    shard = kafkas_shard()
    shard.pass_ms(WEEK_MS)
    asked = OffsetFetchRequestGroup(group_id="streams", topics=None)
    shard.ask("fetch", lambda at, ticket, _: fetch_offsets(at, asked, ticket, require_stable=True))
    answer = reply(shard)
    assert isinstance(answer, OffsetFetchResponseGroup)
    assert [partition.committed_offset for partition in answer.topics[0].partitions] == [5]
    assert set(listed(shard)) == set(UNSERVED)  # the plain group has expired


def test_kafkas_tombstones_free_the_id() -> None:
    shard = kafkas_shard()
    shard.run(
        CoordinatorResult(
            records=[
                Record(ShareGroupMemberMetadataKey(group_id="share", member_id="m"), None),
                Record(ShareGroupMetadataKey(group_id="share"), None),
                Record(StreamsGroupMetadataKey(group_id="streams"), None),
            ]
        )
    )
    assert set(listed(shard)) == {"plain", "share-empty", "streams", "streams-empty"}
    assert listed(shard)["streams"] == ("classic", "Empty", "")  # its offsets may expire now
    for group_id in ("share", "streams"):
        consumer = Consumer(shard, "n", group_id)
        assert consumer.join(["t"]).error_code == ErrorCode.NONE
    assert {listed(shard)[group_id][0] for group_id in ("share", "streams")} == {"consumer"}
    shard.fail_over()
    assert {listed(shard)[group_id][0] for group_id in ("share", "streams")} == {"consumer"}


def test_one_note_names_what_is_kept() -> None:
    shard = kafkas_shard()
    (note,) = shard.shard.load_notes()
    assert note == (
        "keeps 2 share and 2 streams group(s) that Lograft does not serve yet; their ids are"
        " reserved (records: 1 ShareGroupMemberMetadata, 2 ShareGroupMetadata,"
        " 1 StreamsGroupMemberMetadata, 2 StreamsGroupMetadata, 2 StreamsGroupTopology)"
    )
    groups = gather_all(shard.shard.collect_samples()).by_metric[GROUPS]
    assert {kind for kind, state in groups if groups[kind, state]} >= {"share", "streams"}
    assert Shard({}).shard.load_notes() == ()


def test_offsets_that_kafka_0_8_wrote_are_read() -> None:
    shard = Shard({})
    key = LegacyOffsetCommitKey(group="old", topic="t", partition=1)
    value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
    shard.run(CoordinatorResult(records=[Record(key, value)]))
    committed = shard.shard.offsets.get("old", "t", 1)
    assert committed is not None
    assert (committed.offset, committed.metadata, committed.commit_ms) == (9, "m", 5)
    shard.run(CoordinatorResult(records=[Record(key, None)]))
    assert shard.shard.offsets.get("old", "t", 1) is None
