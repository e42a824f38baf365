"""The same sequences of group requests, of both protocols, on Lograft and on Apache Kafka.

Each scenario runs on both servers, with clients that keep the epochs and partitions from their
responses. All responses are compared field by field, except for generated ids, and for the
partitions from the uniform assignor if several assignments are possible. Of error messages, only
their presence is compared.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final
from uuid import UUID

import pytest

from lograft.coordination.classic_subscription import assignment_of
from lograft.model.errors import ErrorCode
from lograft.wire.codec import write
from lograft.wire.message import Message
from lograft.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.messages.describe_groups import DescribeGroupsRequest
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from lograft.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from lograft.wire.records.consumer_protocol_assignment import ConsumerProtocolAssignment
from lograft.wire.records.consumer_protocol_assignment import TopicPartition as Assigned
from lograft.wire.records.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Server, compares_two
from tests.compatibility.test_same_answers import differences

pytestmark = [
    pytest.mark.interop,
    compares_two(),
]
VERSION: Final = Struct(">h")
TOPICS: Final = {"t": 4, "u": 2}
ANSWER_SECONDS_MAX: Final = 30.0
#: Fields with generated values.
MADE_UP: Final = {"throttle_time_ms", "member_id", "leader", "coordinator", "topic_id"}
Partitions = dict[str, list[int]]


class World:
    """A server, a group, and all responses."""

    def __init__(self, server: Server, group: str, topic_ids: dict[str, UUID]) -> None:
        self.connection = connect(server)
        self.group = group
        self.topic_ids = topic_ids
        self.names = {topic_id: name for name, topic_id in topic_ids.items()}
        self.results: list[tuple[str, Any]] = []

    def ask(self, what: str, request: Message, version: int) -> Any:
        answer = ask(self.connection, request, version)
        self.results.append((what, self.comparable(answer)))
        return answer

    def comparable(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Message):
            return {
                field.name: self.comparable(getattr(value, field.name), field.name)
                for field in value.FIELDS
                if field.name not in MADE_UP and field.name != "topic_partitions"
            } | self._counts(value)
        if name == "error_message":
            return bool(value)
        if isinstance(value, list):
            return sorted((self.comparable(each) for each in value), key=repr)
        return bytes(value) if isinstance(value, memoryview) else value

    def _counts(self, value: Message) -> dict[str, Any]:
        """Topics with their numbers of partitions."""
        found = getattr(value, "topic_partitions", None)
        if not found:
            return {}
        return dict(sorted((self.names[each.topic_id], len(each.partitions)) for each in found))

    # Requests that need no membership.

    def describe(self) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group])
        self.ask("describe", request, 1)
        self.ask("describe classic", DescribeGroupsRequest(groups=[self.group]), 6)

    def list(self) -> None:
        answer = ask(self.connection, ListGroupsRequest(), 5)
        assert isinstance(answer, ListGroupsResponse)
        mine = [group for group in answer.groups if group.group_id == self.group]
        self.results.append(("list", self.comparable(mine)))

    def commit(self, member_id: str, epoch: int, partition: int, version: int = 9) -> None:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=3, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        self.ask(f"commit in {epoch}", request, version)

    def fetch(self, member_id: str | None, epoch: int) -> None:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group,
                    member_id=member_id,
                    member_epoch=epoch,
                    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                )
            ]
        )
        self.ask(f"fetch in {epoch}", request, 9)


class Consumer:
    """A member of the consumer protocol. It revokes partitions before its next heartbeat."""

    def __init__(self, world: World, name: str, *, instance: str | None = None) -> None:
        self.world = world
        self.name = name
        self.member_id = f"id-of-{name}"
        self.instance = instance
        self.epoch = 0
        self.has: dict[UUID, list[int]] = {}

    def send(self, what: str, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        values = {
            "group_id": self.world.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            **fields,
        }
        request = ConsumerGroupHeartbeatRequest(**values)
        answer = self.world.ask(f"{self.name} {what}", request, version)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.has = {
                    partition.topic_id: list(partition.partitions)
                    for partition in answer.assignment.topic_partitions
                }
        return answer

    def join(self, *topics: str, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        values = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
            **fields,
        }
        return self.send("joins", version, **values)

    def owned(
        self, has: dict[UUID, list[int]] | None = None
    ) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=found)
            for topic_id, found in (self.has if has is None else has).items()
        ]

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.send("beats", **{"topic_partitions": self.owned(), **fields})

    def leave(self, epoch: int = -1) -> None:
        self.send("leaves", member_epoch=epoch)


class Classic:
    """A member of the classic protocol, eager unless it has owned partitions in its
    subscription."""

    def __init__(self, world: World, name: str, *, instance: str | None = None) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.protocols = ["range"]
        self.has: Partitions = {}

    def join(self, *topics: str, owns: Partitions | None = None) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[
                TopicPartition(topic=topic, partitions=found)
                for topic, found in (owns or {}).items()
            ],
        )
        metadata = VERSION.pack(1) + write(subscription, 1)
        request = JoinGroupRequest(
            group_id=self.world.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols
            ],
        )
        answer = self.world.ask(f"{self.name} joins", request, 9)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = answer.member_id
            answer = self.world.ask(f"{self.name} joins", request, 9)
        assert isinstance(answer, JoinGroupResponse)
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assigned: dict[str, Partitions] | None = None, protocol: str = "range") -> None:
        request = SyncGroupRequest(
            group_id=self.world.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encoded(found))
                for member_id, found in (assigned or {}).items()
            ],
        )
        answer = ask(self.world.connection, request, 5)
        assert isinstance(answer, SyncGroupResponse)
        found = assignment_of(bytes(answer.assignment))
        self.has = (
            {partition.topic: partition.partitions for partition in found.assigned_partitions}
            if found
            else {}
        )
        counts = {topic: len(partitions) for topic, partitions in self.has.items()}
        result = (answer.error_code, answer.protocol_type, answer.protocol_name, counts)
        version = bytes(answer.assignment[:2])
        self.world.results.append((f"{self.name} syncs", [*result, version]))

    def beat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.world.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        code: int = self.world.ask(f"{self.name} beats", request, 4).error_code
        return code

    def leave(self, *, by_instance: bool = False) -> None:
        identity = MemberIdentity(
            member_id="" if by_instance else self.member_id, group_instance_id=self.instance
        )
        request = LeaveGroupRequest(group_id=self.world.group, members=[identity])
        self.world.ask(f"{self.name} leaves", request, 5)


def encoded(partitions: Partitions) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            Assigned(topic=topic, partitions=found) for topic, found in partitions.items()
        ]
    )
    return VERSION.pack(1) + write(message, 1)


# The scenarios.


def two_members(world: World) -> None:
    first, second = Consumer(world, "first"), Consumer(world, "second")
    first.join("t")
    first.beat()
    world.describe()
    second.join("t", "u", "nowhere")
    before = dict(first.has)
    first.beat()
    world.describe()
    first.beat(topic_partitions=first.owned(before))  # still has the partitions that it must revoke
    first.beat(topic_partitions=None)
    second.beat()
    first.beat()
    second.beat()
    first.beat()
    world.describe()
    world.list()
    second.beat(subscribed_topic_names=["u"])
    first.beat()
    second.beat()
    first.beat()
    second.leave()
    world.describe()
    first.beat()
    first.leave()
    world.describe()
    world.list()


def lost_answers(world: World) -> None:
    first, second = Consumer(world, "first"), Consumer(world, "second")
    first.join("t")
    everything = dict(first.has)
    first.join("t")  # as if it had received nothing
    first.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"])
    second.join("t")
    first.beat()
    kept = dict(first.has)
    epoch = first.epoch
    first.beat()  # revokes, advances
    first.beat(member_epoch=epoch, topic_partitions=first.owned(kept))
    first.beat(member_epoch=epoch, topic_partitions=first.owned(everything))
    first.beat(member_epoch=epoch, topic_partitions=None)
    first.beat(member_epoch=epoch - 1)
    first.beat(member_epoch=first.epoch + 1)
    first.join("t")
    second.beat()
    world.describe()


def refusals(world: World) -> None:
    member = Consumer(world, "member")
    member.beat(member_epoch=1)
    member.leave()
    member.join("t", topic_partitions=None)
    member.join(
        "t",
        topic_partitions=[
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=world.topic_ids["t"], partitions=[0]
            )
        ],
    )
    member.join("t", rebalance_timeout_ms=-1)
    member.join(subscribed_topic_names=None)
    member.join("t", member_id="")
    member.join("t", rack_id="")
    member.join("t", instance_id="")
    member.join("t", instance_id=" ")
    member.join("t", server_assignor="sticky")
    member.join("t", server_assignor="")
    member.join("t", group_id="")
    member.send("leaves oddly", member_epoch=-3)
    member.send("leaves for now", member_epoch=-2)
    member.join(subscribed_topic_names=None, subscribed_topic_regex="(")
    member.join("t", subscribed_topic_regex="[a")
    world.describe()
    member.join("t")
    stranger = Consumer(world, "stranger")
    stranger.beat(member_epoch=1)
    stranger.leave()
    stranger.send("has no id", member_epoch=1, member_id="")
    stranger.join("t", member_id="", version=0)
    world.describe()


def positions(world: World) -> None:
    member, other = Consumer(world, "member"), Consumer(world, "other")
    world.commit("", -1, 0)
    world.fetch(None, -1)
    member.join("t")
    world.commit("", -1, 0)
    world.commit("nobody", 1, 0)
    world.commit(member.member_id, member.epoch, 0)
    world.commit(member.member_id, member.epoch, 0, version=8)
    world.commit(member.member_id, member.epoch + 1, 0)
    world.commit(member.member_id, member.epoch - 1, 0)
    world.fetch(member.member_id, member.epoch)
    world.fetch(member.member_id, member.epoch + 1)
    world.fetch(member.member_id, member.epoch - 1)
    world.fetch("nobody", 1)
    world.fetch(None, -1)
    old = member.epoch
    other.join("t")
    (mine,) = member.has.values()
    member.beat()
    (kept,) = member.has.values()
    lost = next(each for each in mine if each not in kept)
    world.commit(member.member_id, member.epoch, lost)
    member.beat()
    world.commit(member.member_id, old, kept[0])
    world.commit(member.member_id, old, lost)
    other.beat()
    world.commit(other.member_id, other.epoch, lost)
    world.commit(other.member_id, old, lost)


def static_members(world: World) -> None:
    first, second = Consumer(world, "one", instance="i1"), Consumer(world, "two", instance="i2")
    first.join("t")
    second.join("t")
    first.beat()
    first.beat()
    second.beat()
    again = Consumer(world, "again", instance="i2")
    again.join("t")  # the first is still a member
    again.beat(member_epoch=second.epoch)
    again.leave(-2)
    second.leave(-2)
    world.describe()
    second.beat(member_epoch=1)
    again.join("t")
    first.beat()
    again.beat()
    second.join("t")
    world.describe()
    again.leave(-2)
    second.join("u")
    first.beat()
    world.describe()
    second.send("is another", instance_id="i9", topic_partitions=second.owned())
    second.send("forgot who it is", instance_id=None, topic_partitions=second.owned())
    second.leave()
    first.leave()
    world.describe()


def range_assignor(world: World) -> None:
    members = [Consumer(world, name) for name in ("a", "b", "c")]
    for member in members:
        member.join("t", "u", server_assignor="range")
    for _ in range(3):
        for member in members:
            member.beat()
    for member in members:
        named = {world.names[each]: sorted(found) for each, found in member.has.items()}
        world.results.append((f"{member.name} has", named))
    world.describe()


def upgrade(world: World) -> None:
    old, new = Classic(world, "old"), Consumer(world, "new")
    old.join("t")
    old.sync({old.member_id: {"t": [0, 1, 2, 3]}})
    world.describe()
    new.join("t")
    world.describe()
    world.commit(old.member_id, old.generation, 0)
    world.commit(old.member_id, old.generation + 1, 0)
    old.beat()
    old.sync()
    new.beat()
    old.join("t")
    old.beat()
    old.sync(protocol="roundrobin")
    old.sync()
    old.beat()
    new.beat()
    old.beat()
    world.describe()
    world.list()
    world.commit(old.member_id, old.generation, 0)
    world.commit(old.member_id, old.generation - 1, 0)
    world.fetch(None, -1)
    new.leave()
    world.describe()
    old.beat()
    old.join("t")
    old.sync({old.member_id: {"t": [0, 1, 2, 3]}})
    old.beat()
    world.describe()
    old.leave()


def cooperative_upgrade(world: World) -> None:
    old, new = Classic(world, "old"), Consumer(world, "new")
    old.protocols = ["range", "sticky"]
    old.join("t")
    old.sync({old.member_id: {"t": [0, 1, 2, 3]}})
    new.join("t")
    old.beat()
    old.join("t", owns=old.has)
    world.describe()
    new.beat()
    old.sync()
    old.beat()
    new.beat()
    old.join("t", owns=old.has)
    old.sync()
    old.beat()
    new.beat()
    world.describe()
    third = Classic(world, "third")
    third.protocols = ["other"]
    third.join("t")
    third.protocols = ["sticky"]
    third.member_id = ""
    third.join("u")
    third.sync(protocol="sticky")
    third.beat()
    old.beat()
    new.beat()
    old.join("t", owns=old.has)
    old.sync()
    old.leave()
    third.beat()
    third.leave()
    old.beat()
    old.leave()
    new.beat()
    world.describe()


def static_ways(world: World) -> None:
    first, second = Classic(world, "one", instance="i1"), Consumer(world, "two", instance="i2")
    second.join("t")
    first.join("t")
    first.sync()
    second.beat()
    second.beat()
    first.beat()
    first.join("t")
    first.sync()
    first.beat()
    world.describe()
    younger = Classic(world, "younger", instance="i1")
    younger.join("t")
    younger.sync()
    first.beat()
    first.sync()
    first.join("t")
    first.leave()
    younger.beat()
    world.describe()
    second.leave(-2)
    back = Classic(world, "back", instance="i2")
    back.join("t")
    world.describe()
    back.sync()
    back.beat()
    younger.beat()
    new = Consumer(world, "new", instance="i1")
    new.join("t")
    younger.beat()
    back.beat()
    world.describe()
    back.leave(by_instance=True)
    back.leave(by_instance=True)
    new.beat()
    world.describe()


def empty_groups(world: World) -> None:
    """An empty group changes its type."""
    old, new = Classic(world, "old"), Consumer(world, "new")
    new.join("t")
    new.leave()
    world.describe()
    old.join("t")
    old.sync({old.member_id: {"t": [0]}})
    world.describe()
    old.leave()
    new.join("t")
    world.describe()
    new.leave()


STORIES: Final[list[Callable[[World], None]]] = [
    two_members,
    lost_answers,
    refusals,
    positions,
    static_members,
    range_assignor,
    upgrade,
    cooperative_upgrade,
    static_ways,
    empty_groups,
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    settings = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.migration.policy": "bidirectional",
        "group.consumer.min.assignment.interval.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
    }
    with two_coordinators(tmp_path_factory, settings) as both:
        yield both


@contextmanager
def two_coordinators(
    tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]
) -> Iterator[tuple[Server, Server]]:
    """Apache Kafka and Lograft with the topics of the scenarios, ready for groups."""
    kafka = Server.of("kafka", tmp_path_factory.mktemp("kafka"), settings=settings)
    ours = Server.of("lograft", tmp_path_factory.mktemp("lograft"), settings=settings)
    with kafka.started(), ours.started():
        for server in (kafka, ours):
            for topic, partitions in TOPICS.items():
                create_topic(server.bootstrap, topic, partitions=partitions)
            await_coordinator(server)
        yield kafka, ours


def await_coordinator(server: Server) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    with connect(server) as connection:
        while True:
            assert time.monotonic() < deadline
            found = ask(connection, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert isinstance(found, FindCoordinatorResponse)
            if not found.coordinators[0].error_code:
                answer = ask(connection, HeartbeatRequest(group_id="g", member_id="m"), 4)
                if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_MEMBER_ID:
                    return
            time.sleep(0.1)


def results_of(server: Server, story: Callable[[World], None]) -> list[tuple[str, Any]]:
    with connect(server) as connection:
        known = ask(connection, MetadataRequest(topics=None), 12)
        assert isinstance(known, MetadataResponse)
    ids = {str(topic.name): topic.topic_id for topic in known.topics if topic.name in TOPICS}
    world = World(server, story.__name__, ids)
    with world.connection:
        story(world)
    return world.results


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_same_story(pair: tuple[Server, Server], story: Callable[[World], None]) -> None:
    check_same_story(pair, story)


def check_same_story(pair: tuple[Server, Server], story: Callable[[World], None]) -> None:
    kafkas, ours = (results_of(server, story) for server in pair)
    assert [what for what, _ in kafkas] == [what for what, _ in ours]
    different = [
        difference
        for number, ((what, theirs), (_, mine)) in enumerate(zip(kafkas, ours, strict=True))
        for difference in differences(theirs, mine, f"{number}/{what}")
    ]
    assert not different, "\n".join(different)
