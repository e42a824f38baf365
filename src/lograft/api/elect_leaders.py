"""ElectLeaders, versions 0-2: elects the preferred leaders, or unclean leaders.

v1: unclean elections. No topics in the request means all of them. v2, Lograft clients only: the
broker that should become the leader.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.types import whole_request
from lograft.metadata.elect_leaders import ElectionType, elect_leaders
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_NODE, NodeId, ReplicationMode, TopicIdPartition
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API: Final = Api(key=43, versions=range(3), needs=whole_request(CLUSTER_ALTER))
#: A leader abandons a requested handover after half a second; then the voters elect.
HAND_OVER_WAIT_MS: Final = 3_000


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    config = context.shared.config
    response = await decide(
        context,
        lambda image: elect_leaders(image, request, config=config),
        timeout_ms=request.timeout_ms,
    )
    if request.election_type == ElectionType.PREFERRED:
        await _hand_over(context, request, response)
    return response


async def _hand_over(
    context: Context, request: ElectLeadersRequest, response: ElectLeadersResponse
) -> None:
    """Requests partitions whose replicas elect their own leader (Raft) to hand over leadership to
    the preferred replica, or to the broker that the request names."""
    controller = context.shared.local_controller
    image = None if controller is None else controller.image
    if controller is None or image is None or controller.hand_over is None:
        return
    for result in response.replica_election_results:
        topic = image.topic(result.topic)
        for partition_result in result.partition_result:
            if topic is None or partition_result.error_code != ErrorCode.INVALID_REQUEST:
                continue
            state = topic.partitions.get(partition_result.partition_id)
            if state is not None and state.mode is ReplicationMode.RAFT:
                key = TopicIdPartition(topic.topic_id, partition_result.partition_id)
                leader = state.replicas[0] if request.leader == NO_NODE else request.leader
                partition_result.error_code = await controller.hand_over(key, NodeId(leader))
                partition_result.error_message = None
                if request.leader != NO_NODE:
                    await _wait_leader(
                        context, key, partition_result, leader, timeout_ms=request.timeout_ms
                    )


async def _wait_leader(
    context: Context,
    key: TopicIdPartition,
    result: PartitionResult,
    leader: int,
    *,
    timeout_ms: int,
) -> None:
    """Waits until the metadata shows the new leader: the current leader hands over only once the
    other replica has caught up, and gives up otherwise."""
    shared = context.shared

    def is_met(image: MetadataImage) -> bool:
        topic = image.topics.get(key.topic_id)
        state = None if topic is None else topic.partitions.get(key.partition)
        return state is None or state.leader == leader

    if result.error_code == ErrorCode.NONE:
        wait_ms = min(max(timeout_ms, 0), HAND_OVER_WAIT_MS)
        await shared.metadata.wait_image(is_met, timeout_ms=wait_ms)
        if is_met(shared.image):
            return
        result.error_code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    result.error_message = (
        f"Broker {leader} did not become the leader: it had not caught up, or the current leader"
        " did not respond. No records were lost; retry the election."
    )


def error_response(
    request: ElectLeadersRequest, code: ErrorCode, message: str
) -> ElectLeadersResponse:
    """As in Kafka, the requested partitions carry the error, too: version 0 has no other place."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
