"""Every version of the offset APIs on Lograft and on Apache Kafka, with the same responses.

Uses the clients and servers of test_same_groups.py.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pytest

from lograft.wire.messages.delete_groups import DeleteGroupsRequest
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lograft.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.compatibility.servers import Server
from tests.compatibility.test_same_groups import (
    Classic,
    Consumer,
    World,
    check_same_story,
    pair,
    pytestmark,
)

__all__ = ["pair", "pytestmark"]
IDS_SINCE: Final = 10
GROUPS_SINCE: Final = 8
COMMITS: Final = range(2, 11)
FETCHES: Final = range(1, 11)
NO_TOPIC: Final = UUID(int=99)


class Offsets:
    """Requests for offsets that need no membership."""

    def __init__(self, world: World) -> None:
        self.world = world

    def commit(
        self,
        version: int,
        topics: dict[str, dict[int, int]],
        *,
        metadata: str | None = "",
        epoch: int = -1,
        leader_epoch: int = -1,
        group: str | None = None,
        **fields: Any,
    ) -> None:
        request = OffsetCommitRequest(
            group_id=self.world.group if group is None else group,
            generation_id_or_member_epoch=epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=self.world.topic_ids.get(name, NO_TOPIC),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch if version >= 6 else -1,
                            committed_metadata=metadata,
                        )
                        for partition, offset in positions.items()
                    ],
                )
                for name, positions in topics.items()
            ],
            **fields,
        )
        self.world.ask(f"commit {version}", request, version)

    def fetch(
        self,
        version: int,
        topics: dict[str, list[int]] | None,
        *others: str,
        stable: bool = False,
        member: str | None = None,
        epoch: int = -1,
    ) -> None:
        request = OffsetFetchRequest(require_stable=stable and version >= 7)
        if version >= GROUPS_SINCE:
            for group in (self.world.group, *others):
                asked = OffsetFetchRequestGroup(group_id=group, topics=None)
                if version >= 9:
                    asked.member_id, asked.member_epoch = member, epoch
                if topics is not None:
                    asked.topics = [
                        OffsetFetchRequestTopics(
                            name=name,
                            topic_id=self.world.topic_ids.get(name, NO_TOPIC),
                            partition_indexes=partitions,
                        )
                        for name, partitions in topics.items()
                    ]
                request.groups.append(asked)
        else:
            request.group_id, request.topics = self.world.group, None
            if topics is not None:
                request.topics = [
                    OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
                    for name, partitions in topics.items()
                ]
        self.world.ask(f"fetch {version}", request, version)

    def forget(self, topics: dict[str, list[int]], group: str | None = None) -> None:
        request = OffsetDeleteRequest(
            group_id=self.world.group if group is None else group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=partition)
                        for partition in partitions
                    ],
                )
                for name, partitions in topics.items()
            ],
        )
        self.world.ask("forget", request, 0)

    def delete(self, version: int, *groups: str) -> None:
        request = DeleteGroupsRequest(groups_names=list(groups or [self.world.group]))
        self.world.ask(f"delete {version}", request, version)


# Scenarios.


def all_versions(world: World) -> None:
    offsets = Offsets(world)
    for version in COMMITS:
        offsets.commit(version, {"t": {0: version, 1: 7}}, metadata=f"v{version}", leader_epoch=3)
        offsets.commit(version, {"t": {2: 5}}, metadata=None)
        offsets.commit(version, {"nowhere": {0: 1}, "u": {1: 2}})
        offsets.commit(version, {"t": {77: 1}})
        offsets.commit(version, {"t": {3: -1}})
        offsets.commit(version, {})
        offsets.commit(version, {"t": {}})
        for fetched in FETCHES:
            offsets.fetch(fetched, {"t": [0, 1, 2, 3, 77], "u": [0, 1]}, stable=True)
    for version in FETCHES:
        offsets.fetch(version, {"t": [3, 3], "nowhere": [0]})
        offsets.fetch(version, {})
        offsets.fetch(version, {"t": []})
        if version > 1:
            offsets.fetch(version, None)
        if version >= GROUPS_SINCE:
            offsets.fetch(version, None, "nobody", world.group)
            offsets.fetch(version, {"t": [0]}, "nobody", "")


def metadata_limit(world: World) -> None:
    offsets = Offsets(world)
    for length in (4096, 4097):
        offsets.commit(9, {"t": {0: length}}, metadata="m" * length)
        offsets.commit(9, {"t": {1: length}}, metadata="\N{SNOWMAN}" * length)
    offsets.fetch(9, None)


def too_much_at_once(world: World) -> None:
    """More than max.message.bytes of __consumer_offsets: the whole request is rejected."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=number % 4, committed_offset=number, committed_metadata="m" * 4096
        )
        for number in range(300)
    ]
    for version in (9, 10):
        topic = OffsetCommitRequestTopic(
            name="t", topic_id=world.topic_ids["t"], partitions=partitions
        )
        request = OffsetCommitRequest(group_id=world.group, topics=[topic])
        world.ask(f"commit too much {version}", request, version)
    Offsets(world).fetch(9, None)


def strangers(world: World) -> None:
    """Requests with a generation, member id or instance id for a group that does not exist or is
    empty."""
    offsets = Offsets(world)
    for version in COMMITS:
        offsets.commit(version, {"t": {0: 1}}, epoch=3, member_id="m")
        offsets.commit(version, {"t": {0: 1}}, epoch=0)
        offsets.commit(version, {"t": {0: 1, 77: 1}, "nowhere": {0: 1}}, epoch=3, member_id="m")
    offsets.fetch(9, {"t": [0]}, member="m", epoch=3)
    offsets.commit(9, {"t": {0: 1}}, member_id="m")
    offsets.commit(9, {"t": {0: 2}}, epoch=-2)
    for version in COMMITS:
        offsets.commit(version, {"t": {0: 3}}, epoch=3, member_id="m")
        offsets.commit(version, {"t": {0: 3}}, epoch=0)
        offsets.commit(version, {"t": {0: 3}}, member_id="m")
        if version >= 7:
            offsets.commit(version, {"t": {0: 3}}, group_instance_id="i")
    offsets.fetch(9, {"t": [0]}, member="m", epoch=3)
    offsets.commit(9, {"t": {0: 9}}, group="")
    offsets.fetch(9, None, "")


def classic_members(world: World) -> None:
    """Before and after the leader has sent the assignment."""
    offsets, member = Offsets(world), Classic(world, "member")
    member.join("t")
    for has_assignment in (False, True):
        if has_assignment:
            member.sync({member.member_id: {"t": [0]}})
        mine: dict[str, Any] = {"member_id": member.member_id}
        for version in COMMITS:
            offsets.commit(version, {"t": {0: 4}}, epoch=member.generation, **mine)
            offsets.commit(version, {"t": {0: 4}}, epoch=member.generation + 1, **mine)
            offsets.commit(version, {"t": {0: 4}}, epoch=-1, **mine)
            offsets.commit(version, {"t": {0: 4}})
            offsets.commit(version, {"t": {0: 4}}, epoch=member.generation, member_id="m")
            if version >= 7:
                static = {**mine, "group_instance_id": "i"}
                offsets.commit(version, {"t": {0: 4}}, epoch=member.generation, **static)
        offsets.fetch(9, {"t": [0]}, member=member.member_id, epoch=member.generation + 4)
        offsets.forget({"t": [0], "u": [0]})
        for version in range(3):
            offsets.delete(version)
    member.leave()
    offsets.fetch(9, None)
    for version in range(3):
        offsets.delete(version)
    offsets.fetch(9, None)


def consumer_members(world: World) -> None:
    offsets, member = Offsets(world), Consumer(world, "member")
    offsets.commit(9, {"t": {0: 4}, "u": {0: 5}})
    member.join("t")
    for version in (9, 10):
        offsets.commit(version, {"t": {0: 6}}, epoch=member.epoch, member_id=member.member_id)
        offsets.commit(version, {"u": {0: 6}}, epoch=member.epoch, member_id=member.member_id)
        offsets.commit(version, {"u": {0: 7}}, epoch=0, member_id=member.member_id)
        offsets.commit(version, {"u": {0: 7}}, epoch=-1, member_id=member.member_id)
    offsets.forget({"t": [0, 1], "u": [0, 1], "nowhere": [0]})
    offsets.fetch(9, None)
    offsets.delete(2)
    member.leave()
    offsets.forget({"t": [0]})
    offsets.fetch(9, None)
    offsets.delete(2, world.group, world.group, "nobody")
    offsets.fetch(9, None)


def forgetting(world: World) -> None:
    offsets = Offsets(world)
    offsets.forget({"t": [0]})
    offsets.forget({"nowhere": [0]})
    offsets.forget({})
    offsets.commit(9, {"t": {0: 1, 1: 2}, "u": {0: 3}})
    offsets.forget({"t": [0, 0, 77], "nowhere": [1]})
    offsets.forget({})
    offsets.forget({"t": []})
    offsets.fetch(9, None)
    offsets.forget({"t": [1], "u": [0]})
    offsets.fetch(9, None)
    world.list()
    offsets.delete(2, world.group, "nobody", "")
    world.list()


STORIES: Final[list[Callable[[World], None]]] = [
    all_versions,
    metadata_limit,
    too_much_at_once,
    strangers,
    classic_members,
    consumer_members,
    forgetting,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_same_story(pair: tuple[Server, Server], story: Callable[[World], None]) -> None:
    check_same_story(pair, story)
