"""`lograft groups` without a network: what it asks for, and what it makes of the answers."""

import asyncio
from struct import pack
from typing import Any

import pytest

from lograft.cli import group_questions
from lograft.cli.group_questions import GroupsRefused
from lograft.cli.group_resets import (
    Move,
    Target,
    execute,
    parse_datetime_ms,
    parse_duration_ms,
    parse_scope,
    plan_lines,
    plan_reset,
    plan_undo,
)
from lograft.cli.groups import delete, describe, describe_json, describe_lines, list_lines, listed
from lograft.coordination.offset_reset import ResetAction
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.seams import Address
from lograft.wire import codec
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    TopicPartitions,
)
from lograft.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from lograft.wire.messages.consumer_group_describe import Member as ConsumerMember
from lograft.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from lograft.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lograft.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from lograft.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from lograft.wire.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)

NODE = Address("n1", 9092)
PARTITIONS = 3
EARLIEST, LATEST, SINCE_NOON = 10, 100, 40
NOON_MS = 1_000_000


class Server:
    """One broker, a topic t, a classic group c and a consumer group k, each with one member that
    has partition 0 and an offset in partitions 0 and 1."""

    def __init__(self) -> None:
        self.resets: list[OffsetCommitRequest] = []
        self.code = ErrorCode.none
        self.message = ""
        #: So often the coordinator is still loading.
        self.loading = 0
        self.leader_of_2 = 1
        self.position_1 = OffsetFetchResponsePartitions(
            partition_index=1, committed_offset=60, metadata=""
        )

    async def ask(
        self, message: Message, version: int, answer: Any, *, at: Address | None = None
    ) -> Any:
        codec.write(message, version)
        return getattr(self, f"_{type(message).__name__}")(message)

    def _MetadataRequest(self, request: MetadataRequest) -> MetadataResponse:
        broker = MetadataResponseBroker(node_id=1, host=NODE.host, port=NODE.port)
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=self.leader_of_2 if index == 2 else 1
            )
            for index in range(PARTITIONS)
        ]
        topic = MetadataResponseTopic(name="t", partitions=partitions)
        return MetadataResponse(brokers=[broker], topics=[topic] if request.topics is None else [])

    def _FindCoordinatorRequest(self, _request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        code = ErrorCode.none
        if self.loading:
            self.loading -= 1
            code = ErrorCode.coordinator_load_in_progress
        found = Coordinator(node_id=1, host=NODE.host, port=NODE.port, error_code=code)
        return FindCoordinatorResponse(coordinators=[found])

    def _ListGroupsRequest(self, _request: ListGroupsRequest) -> ListGroupsResponse:
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id="k",
                    group_state="Stable",
                    group_type="consumer",
                    protocol_type="consumer",
                ),
                ListedGroup(
                    group_id="c",
                    group_state="Stable",
                    group_type="classic",
                    protocol_type="consumer",
                ),
                ListedGroup(group_id="e", group_state="Empty", group_type="classic"),
            ]
        )

    def _ConsumerGroupDescribeRequest(
        self, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        (group,) = request.group_ids
        if group != "k":
            code = ErrorCode.group_id_not_found
            return ConsumerGroupDescribeResponse(groups=[ConsumerGroup(error_code=code)])
        assigned = Assignment(topic_partitions=[TopicPartitions(topic_name="t", partitions=[0])])
        member = ConsumerMember(
            member_id="m1", client_id="app", client_host="/h", assignment=assigned
        )
        found = ConsumerGroup(
            group_id="k", group_state="Stable", assignor_name="uniform", members=[member]
        )
        return ConsumerGroupDescribeResponse(groups=[found])

    def _DescribeGroupsRequest(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        (group,) = request.groups
        if group != "c":
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(
                        error_code=ErrorCode.group_id_not_found, group_id=group, group_state="Dead"
                    )
                ]
            )
        assigned = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic="t", partitions=[0])]
        )
        member = DescribedGroupMember(
            member_id="m2",
            group_instance_id="i",
            client_id="app",
            client_host="/h",
            member_assignment=pack(">h", 1) + codec.write(assigned, 1),
        )
        found = DescribedGroup(
            group_id="c", group_state="Stable", protocol_data="range", members=[member]
        )
        return DescribeGroupsResponse(groups=[found])

    def _OffsetFetchRequest(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (group,) = request.groups
        first = OffsetFetchResponsePartitions(partition_index=0, committed_offset=50, metadata="")
        topic = OffsetFetchResponseTopics(name="t", partitions=[first, self.position_1])
        topics = [topic] if group.group_id in ("c", "k") else []
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)]
        )

    def _ListOffsetsRequest(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        offsets = {-2: EARLIEST, -1: LATEST, NOON_MS: SINCE_NOON}
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            offset=offsets.get(one.timestamp, -1),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _OffsetCommitRequest(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        self.resets.append(request)
        partition = OffsetCommitResponsePartition(error_code=self.code)
        topic = OffsetCommitResponseTopic(name="t", partitions=[partition])
        return OffsetCommitResponse(topics=[topic], error_message=self.message)

    def _DeleteGroupsRequest(self, _request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(error_code=self.code)])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(group_questions, "ATTEMPT_SECONDS", 0)
    return Server()


def test_list_filters_and_sorts(server: Server) -> None:
    found = asyncio.run(listed(server.ask, states=["stable"], types=[]))
    assert list_lines(found) == [
        "GROUP  TYPE      STATE",
        "c      classic   Stable",
        "k      consumer  Stable",
    ]
    assert asyncio.run(listed(server.ask, states=[], types=["Consumer"])) == [found[1]]


def test_describe_shows_members_and_lag(server: Server) -> None:
    server.position_1.reset_timestamp = 5
    server.leader_of_2 = -1
    found = asyncio.run(describe(server.ask, ["c"]))
    assert list(describe_lines(found)) == [
        "c  classic  Stable  1 member, assigned by range",
        "",
        "MEMBER  INSTANCE  CLIENT  HOST  PARTITIONS",
        "m2      i         app     /h    t:0",
        "",
        "PARTITION  OFFSET  END  LAG  BEFORE RESET  MEMBER",
        "t-0        50      100  50   -             m2",
        "t-1        60      100  40   none          -",
    ]
    (group,) = describe_json(asyncio.run(describe(server.ask, ["k"])))
    assert group["members"][0]["partitions"] == {"t": [0]}
    assert group["positions"][0] == {
        "topic": "t",
        "partition": 0,
        "offset": 50,
        "end_offset": 100,
        "lag": 50,
        "member": "m1",
        "offset_before_reset": None,
    }


def test_describe_of_nobody(server: Server) -> None:
    with pytest.raises(GroupsRefused, match="there is no group x; `lograft groups list` shows"):
        asyncio.run(describe(server.ask, ["x"]))


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (Target(earliest=True), [EARLIEST] * 3),
        (Target(latest=True), [LATEST] * 3),
        (Target(offset=70), [70] * 3),
        (Target(offset=3), [EARLIEST] * 3),
        (Target(offset=300), [LATEST] * 3),
        (Target(from_ms=NOON_MS), [SINCE_NOON] * 3),
        (Target(from_ms=NOON_MS + 1), [LATEST] * 3),
    ],
)
def test_where_a_reset_goes(server: Server, target: Target, after: list[int]) -> None:
    plan = asyncio.run(plan_reset(server.ask, "c", target, {"t": None}))
    assert plan.moves == [
        Move("t", 0, 50, after[0]),
        Move("t", 1, 60, after[1]),
        Move("t", 2, None, after[2]),
    ]
    assert plan.members == 1


def test_a_shift_needs_an_offset(server: Server) -> None:
    shift = Target(shift=-20)
    plan = asyncio.run(plan_reset(server.ask, "c", shift, {}))
    assert [move.after for move in plan.moves] == [30, 40]
    with pytest.raises(GroupsRefused, match="t-2 has no offset to shift; use --to-earliest"):
        asyncio.run(plan_reset(server.ask, "c", shift, {"t": None}))


@pytest.mark.parametrize(
    ("group", "scope", "sentence"),
    [
        ("c", {"u": None}, "there is no topic u"),
        ("c", {"t": {1, 7}}, "topic t has no partition 7, it has 3"),
        ("e", {}, "group e has no offsets and reads nothing; name its topics with --topic"),
    ],
)
def test_scopes_that_make_no_sense(
    server: Server, group: str, scope: dict[str, set[int] | None], sentence: str
) -> None:
    with pytest.raises(GroupsRefused, match=sentence):
        asyncio.run(plan_reset(server.ask, group, Target(latest=True), scope))


def test_a_partition_without_a_leader(server: Server) -> None:
    server.leader_of_2 = -1
    with pytest.raises(GroupsRefused, match="t-2 has no leader that answers; try again"):
        asyncio.run(plan_reset(server.ask, "c", Target(latest=True), {"t": None}))


def test_one_request_resets_all(server: Server) -> None:
    server.loading = 3
    plan = asyncio.run(plan_reset(server.ask, "c", Target(offset=70), {"t": {0, 1}}))
    assert plan_lines(plan, executed=False) == [
        "PARTITION  BEFORE  AFTER  DIFFERENCE",
        "t-0        50      70     +20",
        "t-1        60      70     +10",
        "",
        "Nothing is changed yet: --execute does it, in one step.",
        "The 1 member of group c will join again and begin there.",
    ]
    assert not server.resets
    asyncio.run(execute(server.ask, plan))
    (request,) = server.resets
    assert (request.reset_action, request.member_id) == (ResetAction.reset, "")
    assert request.generation_id_or_member_epoch == 0, "Kafka refuses it, whatever the group"
    (topic,) = request.topics
    assert {one.partition_index: one.committed_offset for one in topic.partitions} == {0: 70, 1: 70}


def test_an_undo_names_what_it_restores(server: Server) -> None:
    with pytest.raises(GroupsRefused, match="group c has no reset to undo"):
        asyncio.run(plan_undo(server.ask, "c", {}))
    server.position_1.reset_timestamp = 5
    plan = asyncio.run(plan_undo(server.ask, "c", {}))
    assert plan.moves == [Move("t", 1, 60, None)]
    asyncio.run(execute(server.ask, plan))
    (request,) = server.resets
    assert request.reset_action == ResetAction.undo
    assert request.topics[0].partitions[0].committed_offset == -1
    with pytest.raises(GroupsRefused, match="no reset to undo there"):
        asyncio.run(plan_undo(server.ask, "c", {"t": {0}}))


@pytest.mark.parametrize(
    ("code", "message", "sentence"),
    [
        (ErrorCode.unknown_member_id, "", "does not reset groups in use"),
        (ErrorCode.group_id_not_found, "", "does not reset groups in use"),
        (ErrorCode.invalid_request, "It was undone.", "group c: It was undone."),
        (ErrorCode.not_coordinator, "", "no coordinator after"),
    ],
)
def test_refused_resets(server: Server, code: ErrorCode, message: str, sentence: str) -> None:
    plan = asyncio.run(plan_reset(server.ask, "c", Target(latest=True), {}))
    server.code, server.message = code, message
    with pytest.raises(GroupsRefused, match=sentence):
        asyncio.run(execute(server.ask, plan))


def test_delete(server: Server) -> None:
    assert asyncio.run(delete(server.ask, ["c", "k"])) == [
        "Group c is deleted.",
        "Group k is deleted.",
    ]
    server.code = ErrorCode.non_empty_group
    with pytest.raises(GroupsRefused, match="group c has members; stop them"):
        asyncio.run(delete(server.ask, ["c"]))


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1h30m", 5_400_000), ("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("2d", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "1h30", "-1h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no duration: write it as in 1h30m"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text", ["1970-01-01T00:00:10", "1970-01-01T00:00:10Z", "1970-01-01T02:00:10+02:00"]
)
def test_times(text: str) -> None:
    assert parse_datetime_ms(text) == 10_000


def test_no_time() -> None:
    with pytest.raises(InvalidInput, match="noon is no time"):
        parse_datetime_ms("noon")


def test_scopes() -> None:
    assert parse_scope(["t:0,2", "t:5", "u"]) == {"t": {0, 2, 5}, "u": None}
    assert parse_scope(["t", "t:5"]) == {"t": None}
    for text in ("", ":1", "t:", "t:x"):
        with pytest.raises(InvalidInput):
            parse_scope([text])
