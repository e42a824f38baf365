"""The controller requests that leaders of partitions in raft mode hand over leadership."""

from typing import Any
from uuid import UUID

import pytest

from lograft.broker.control.leader_hand_over import request_hand_over
from lograft.broker.errors import PeerLost
from lograft.broker.links.broker_link import BrokerLink
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.types import Epoch, NodeId, Offset, ReplicationMode, TopicIdPartition
from lograft.wire.message import Message
from lograft.wire.messages import end_quorum_epoch as ends
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.support.scenarios import scenario

TOPIC_ID = UUID(int=7)
DIRECTORIES = [UUID(int=101), UUID(int=102), UUID(int=103)]
PARTITION = TopicIdPartition(TOPIC_ID, 0)
LEADER, SUCCESSOR = NodeId(1), NodeId(2)


class StandInBrokers(BrokerLink):
    """Answers with `code`; None loses the response."""

    def __init__(self, code: ErrorCode | None = ErrorCode.NONE) -> None:
        self.code = code
        self.requests: list[tuple[int, ends.EndQuorumEpochRequest]] = []

    async def request(self, node_id: NodeId, message: Message, *args: Any, **more: Any) -> Any:
        assert isinstance(message, ends.EndQuorumEpochRequest)
        self.requests.append((node_id, message))
        if self.code is None:
            raise PeerLost("gone")
        partition = ends.EndQuorumEpochResponsePartitionData(
            partition_index=0, error_code=self.code
        )
        topic = ends.EndQuorumEpochResponseTopicData(topic_name="t", partitions=[partition])
        return ends.EndQuorumEpochResponse(topics=[topic])


def image_with(*, leader: int = LEADER, is_fenced: bool = False) -> MetadataImage:
    records: list[Message] = [
        RegisterBrokerRecord(broker_id=LEADER, broker_epoch=1, fenced=is_fenced),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1, 2, 3],
            isr=[1, 2, 3],
            leader=leader,
            leader_epoch=5,
            partition_epoch=9,
            directories=DIRECTORIES,
            replication_mode=ReplicationMode.RAFT,
            raft_life=4,
        ),
    ]
    image = MetadataImage()
    image.apply(records, offset=Offset(3), epoch=Epoch(1))
    return image


@scenario()
async def test_the_leader_gets_the_successor_with_its_directory() -> None:
    brokers = StandInBrokers()
    code = await request_hand_over(brokers, image_with(), PARTITION, SUCCESSOR)
    assert code == ErrorCode.NONE
    ((node_id, request),) = brokers.requests
    (data,) = request.topics[0].partitions
    assert node_id == LEADER
    assert (data.leader_id, data.leader_epoch, data.raft_life) == (LEADER, 5, 4)
    (candidate,) = data.preferred_candidates
    assert candidate.candidate_id == SUCCESSOR
    assert candidate.candidate_directory_id == DIRECTORIES[1]


@pytest.mark.parametrize("code", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER])
@scenario()
async def test_a_leader_that_does_not_hand_over_is_reported(code: ErrorCode | None) -> None:
    brokers = StandInBrokers(code)
    reply = await request_hand_over(brokers, image_with(), PARTITION, SUCCESSOR)
    assert reply == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert len(brokers.requests) == 1


@pytest.mark.parametrize(
    ("image", "key", "successor", "code"),
    [
        (image_with(), PARTITION, NodeId(4), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (image_with(leader=-1), PARTITION, SUCCESSOR, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (
            image_with(is_fenced=True),
            PARTITION,
            SUCCESSOR,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (
            image_with(),
            TopicIdPartition(TOPIC_ID, 1),
            SUCCESSOR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            image_with(),
            TopicIdPartition(UUID(int=8), 0),
            SUCCESSOR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
    ids=["not a replica", "no leader", "fenced leader", "no partition", "no topic"],
)
@scenario()
async def test_nothing_is_requested_without_a_leader_and_a_successor(
    image: MetadataImage, key: TopicIdPartition, successor: NodeId, code: ErrorCode
) -> None:
    brokers = StandInBrokers()
    assert await request_hand_over(brokers, image, key, successor) == code
    assert not brokers.requests
