"""AlterReplicaLogDirs, versions 1-2: moves replicas between the log dirs of this broker.

Responds when the moves have started; DescribeLogDirs shows their progress. For a replica that this
broker does not have yet, the log dir is stored and used when the replica is created; the response
is REPLICA_NOT_AVAILABLE until then, as kafka-reassign-partitions expects.
"""

import logging
from typing import Final

from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.broker.broker import Broker
from lograft.broker.errors import ReplicaNotMovable
from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from lograft.security.authorization import CLUSTER_ALTER
from lograft.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

LOGGER: Final = logging.getLogger(__name__)
API: Final = Api(key=34, versions=range(1, 3), needs=whole_request(CLUSTER_ALTER))


def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    broker: Broker = context.broker
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            result.partitions += [
                AlterReplicaLogDirPartitionResult(
                    partition_index=index,
                    error_code=_move(broker, TopicPartition(topic.name, index), log_dir.path),
                )
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def error_response(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, message: str
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for log_dir in request.dirs
            for topic in log_dir.topics
        ]
    )


def _move(broker: Broker, topic_partition: TopicPartition, path: str) -> ErrorCode:
    logs = broker.logs
    target = next((directory for directory in logs.directories if directory.path == path), None)
    if target is None:
        is_unusable = path in logs.unusable
        return ErrorCode.KAFKA_STORAGE_ERROR if is_unusable else ErrorCode.LOG_DIR_NOT_FOUND
    if target.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = broker.partitions.get(topic_partition.topic, topic_partition.partition)
    if partition is None:
        topic = broker.image.topic(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        logs.preferred[topic_partition] = path
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if partition.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition.log is None:
        # Its log is being opened: the tool retries.
        return ErrorCode.REPLICA_NOT_AVAILABLE
    try:
        broker.moves.move(partition, target)
    except ReplicaNotMovable as error:
        LOGGER.info("%s", error)
        return code_of(error)
    return ErrorCode.NONE
