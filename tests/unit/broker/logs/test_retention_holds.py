"""A leader's use of the offsets from group coordinators, with and without responses."""

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.links.peers import Peers
from lograft.broker.logs.retention_holds import EVERYTHING, RetentionHolds
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode
from lograft.model.retention_holds import format_hold
from lograft.model.seams import Address
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import NodeId, Offset
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.broker.bench import make_config

NOW_MS = 1_000_000
COORDINATOR = NodeId(2)
ACTIVE, OVER = format_hold(NOW_MS + 1), format_hold(NOW_MS)


class StandInLink(BrokerLink):
    """Responses by group: (offset, metadata, error) by partition, an error, or no response at
    all."""

    def __init__(self, groups: dict[str, dict[int, tuple[int, str, int]] | ErrorCode | Exception]):
        nobody = cast(Peers, None)
        super().__init__(NodeId(1), nobody, listener="L", metadata=ClusterMetadata(make_config()))
        self._groups = groups
        self.asked: list[str] = []

    async def request(self, node_id: NodeId, message: Any, *rest: Any, **options: Any) -> Any:
        assert isinstance(message, OffsetFetchRequest)
        (asked,) = message.groups
        self.asked.append(asked.group_id)
        found = self._groups[asked.group_id]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, ErrorCode):
            group = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found)
            return OffsetFetchResponse(groups=[group])
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=found[index][0],
                        metadata=found[index][1],
                        error_code=found[index][2],
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
        group = OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)
        return OffsetFetchResponse(groups=[group])


class Led(Partition):
    leads = True


def partition(index: int, *groups: str, kind: type[Partition] = Led) -> Partition:
    config = TopicConfig(retention_hold_groups=groups)
    host: Any = None
    return kind("t", index, topic_id=UUID(int=1), me=NodeId(1), config=config, host=host)


def held(
    link: StandInLink,
    *partitions: Partition,
    coordinator: NodeId | None = COORDINATOR,
    groups: bool = True,
) -> dict[int, int]:
    holds = RetentionHolds(
        link, has_groups=lambda: groups, coordinator_of=lambda group: coordinator
    )
    found = asyncio.run(holds.find_held(partitions, NOW_MS))
    return {each.index: offset for each, offset in found.items()}


def test_the_lowest_of_the_holds_that_count() -> None:
    link = StandInLink(
        {
            "a": {0: (50, ACTIVE, 0), 1: (60, OVER, 0), 2: (-1, "", 0)},
            "b": {0: (40, f"mine {ACTIVE}", 0), 1: (10, "", 0), 2: (-1, ACTIVE, 0)},
        }
    )
    assert held(link, *(partition(index, "a", "b") for index in range(3))) == {0: 40}
    assert sorted(link.asked) == ["a", "b"], "once, for all partitions"


def test_a_topic_that_nobody_may_hold_costs_no_question() -> None:
    link = StandInLink({})
    assert held(link, partition(0)) == {}
    assert held(link, partition(0, "a"), groups=False) == {}
    assert link.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        PeerUnreachable(Address("h", 1), "down"),
        PeerLost(Address("h", 1), "cut"),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        {0: (0, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)},
    ],
)
def test_what_is_not_known_is_held(
    answer: dict[int, tuple[int, str, int]] | ErrorCode | Exception,
) -> None:
    assert held(StandInLink({"a": answer}), partition(0, "a")) == {0: EVERYTHING}


def test_without_a_coordinator_everything_is_held() -> None:
    link = StandInLink({})
    assert held(link, partition(0, "a"), coordinator=None) == {0: EVERYTHING}


def test_a_group_that_is_not_there_holds_nothing() -> None:
    link = StandInLink({"a": ErrorCode.GROUP_ID_NOT_FOUND, "b": {0: (7, ACTIVE, 0)}})
    assert held(link, partition(0, "a")) == {}
    assert held(link, partition(0, "a", "b")) == {0: Offset(7)}


def test_a_follower_leaves_it_to_its_leader() -> None:
    link = StandInLink({})
    assert held(link, partition(0, "a", kind=Partition)) == {0: EVERYTHING}
    assert link.asked == []
