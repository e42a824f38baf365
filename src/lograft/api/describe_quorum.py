"""DescribeQuorum, versions 0-2: the leader, voters and observers of the metadata log.

Only `__cluster_metadata-0` has a quorum. v1: when each replica last fetched. v2: directory ids, the
voters' endpoints, error messages.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import whole_request
from lograft.broker.shared_services import SharedServices
from lograft.model.errors import ErrorCode
from lograft.model.types import METADATA_TOPIC
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

API: Final = Api(key=55, versions=range(3), needs=whole_request(CLUSTER_DESCRIBE))


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    shared = context.shared
    response = DescribeQuorumResponse(error_message=None)
    for topic in request.topics:
        described = DescribeQuorumResponseTopicData(topic_name=topic.topic_name)
        response.topics.append(described)
        for partition in topic.partitions:
            if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                described.partitions.append(_metadata_quorum(shared, context.api_version))
            else:
                described.partitions.append(
                    _build_unknown_partition(topic.topic_name, partition.partition_index)
                )
    if context.api_version >= 2:
        response.nodes = _nodes(shared)
    return response


def _build_unknown_partition(topic: str, index: int) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"Partition {topic}-{index} has no quorum.",
    )


def _metadata_quorum(shared: SharedServices, version: int) -> DescribeQuorumResponsePartitionData:
    """Returns NOT_LEADER_OR_FOLLOWER on other nodes than the leader: only it knows the offsets of
    the replicas."""
    view = shared.quorum
    response = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=view.leader,
        leader_epoch=view.epoch,
        high_watermark=view.high_watermark,
    )
    if not view.is_leader:
        response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        response.error_message = "This controller is not the leader of the metadata quorum."
    for replica in view.replicas():
        state = ReplicaState(
            replica_id=replica.key.node_id,
            log_end_offset=replica.end_offset,
            last_fetch_timestamp=replica.last_contact_ms,
            last_caught_up_timestamp=replica.caught_up_ms,
        )
        if version >= 2:
            state.replica_directory_id = replica.key.directory_id
        (response.current_voters if replica.is_voter else response.observers).append(state)
    return response


def _nodes(shared: SharedServices) -> list[Node]:
    """Returns the voters' endpoints, from the log or from their registration."""
    nodes = []
    for voter in shared.quorum.voters.voters:
        controller = shared.image.controllers.get(voter.key.node_id)
        endpoints = [(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints]
        if not endpoints and controller is not None:
            endpoints = [
                (endpoint.name, endpoint.host, endpoint.port) for endpoint in controller.endpoints
            ]
        nodes.append(
            Node(
                node_id=voter.key.node_id,
                listeners=[
                    Listener(name=name, host=host, port=port) for name, host, port in endpoints
                ],
            )
        )
    return nodes
