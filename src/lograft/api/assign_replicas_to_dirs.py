"""AssignReplicasToDirs, version 0, controller listener: a broker with several log dirs reports
which of them contain its replicas (KIP-858).
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.decisions import decide
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.metadata.directories import assign_directories
from lograft.model.errors import LograftError
from lograft.model.types import TopicIdPartition
from lograft.security.authorization import CLUSTER_ACTION
from lograft.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)

API: Final = Api(key=73, versions=range(1), needs=whole_request(CLUSTER_ACTION))


async def handle(
    context: Context, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    assignments = {
        directory.id: [
            TopicIdPartition(topic.topic_id, partition.partition_index)
            for topic in directory.topics
            for partition in topic.partitions
        ]
        for directory in request.directories
    }
    try:
        rejected = await decide(
            context,
            lambda image: assign_directories(
                image,
                request.broker_id,
                request.broker_epoch,
                assignments,
                config=context.shared.config,
            ),
        )
    except LograftError as error:
        return AssignReplicasToDirsResponse(error_code=code_of(error))
    return AssignReplicasToDirsResponse(
        directories=[
            AssignReplicasToDirsResponseDirectoryData(
                id=directory.id,
                topics=[
                    AssignReplicasToDirsResponseTopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            AssignReplicasToDirsResponsePartitionData(
                                partition_index=partition.partition_index,
                                error_code=rejected.get(
                                    TopicIdPartition(topic.topic_id, partition.partition_index), 0
                                ),
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )
