"""Requests from the controller to leaders of partitions in raft mode, whose replicas elect their
leaders themselves: they hand over leadership, as the leader of a Raft group can (EndQuorumEpoch).
"""

from typing import Final

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.types import NodeId, TopicIdPartition
from lograft.wire.apis import Versions
from lograft.wire.messages import end_quorum_epoch as ends

REQUEST_TIMEOUT_MS: Final = 1_000
VERSIONS: Final = Versions(1, 1)
LANE: Final = "switch"


async def request_hand_over(
    brokers: BrokerLink, image: MetadataImage, key: TopicIdPartition, successor: NodeId
) -> ErrorCode:
    """Requests that the leader hand over leadership to another replica. Whether that one wins is up
    to the voters."""
    topic = image.topics.get(key.topic_id)
    state = None if topic is None else topic.partitions.get(key.partition)
    if topic is None or state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leader = image.brokers.get(state.leader)
    if leader is None or leader.fenced or successor not in state.replicas:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    chosen = ends.ReplicaInfo(
        candidate_id=successor,
        candidate_directory_id=state.directories[state.replicas.index(successor)],
    )
    data = ends.EndQuorumEpochRequestPartitionData(
        partition_index=key.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        preferred_candidates=[chosen],
        raft_life=state.life,
    )
    request = ends.EndQuorumEpochRequest(
        topics=[
            ends.EndQuorumEpochRequestTopicData(
                topic_name=topic.name, topic_id=topic.topic_id, partitions=[data]
            )
        ]
    )
    try:
        response = await brokers.request(
            NodeId(state.leader),
            request,
            VERSIONS,
            ends.EndQuorumEpochResponse,
            timeout_ms=REQUEST_TIMEOUT_MS,
            lane=LANE,
            lograft_only=True,
        )
    except (PeerUnreachable, PeerLost):
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    code = response.topics[0].partitions[0].error_code
    return ErrorCode.NONE if not code else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
