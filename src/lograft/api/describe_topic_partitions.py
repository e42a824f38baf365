"""DescribeTopicPartitions, version 0: topics in the order of their names, in pages.

An answer holds at most `max.request.partition.size.limit` partitions; its cursor says where the
next request goes on. No topics in the request means all of them.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.operations import TOPIC_OPERATIONS
from lograft.broker.broker import Broker
from lograft.metadata.errors import Refused
from lograft.metadata.names import check_topic_name
from lograft.metadata.types import PartitionState
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.types import INTERNAL_TOPICS, NO_NODE
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

API: Final = Api(key=75, versions=range(1))


def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    broker: Broker = context.broker
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidInput(f"a cursor cannot stand at partition {cursor.partition_index}")
    limit = min(broker.config.max_request_partition_size_limit, request.response_partition_limit)
    room = max(1, limit)
    all_topics = not request.topics
    names = sorted(
        broker.image.topic_ids if all_topics else {topic.name for topic in request.topics}
    )
    response = DescribeTopicPartitionsResponse()
    for name in names:
        start = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            if name == cursor.topic_name:
                start = cursor.partition_index
        if room <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=0
            )
            break
        topic, next_partition = _describe(broker, context.listener, name, start, room)
        response.topics.append(topic)
        room -= len(topic.partitions)
        if next_partition is not None:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=next_partition
            )
            break
    return response


def _describe(
    broker: Broker, listener: str, name: str, start: int, room: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """The topic from partition `start` on, and the first partition that found no room."""
    known = broker.image.topic(name)
    if known is None:
        code = ErrorCode.unknown_topic_or_partition
        try:
            check_topic_name(name)
        except Refused as refusal:
            code = refusal.code
        unknown = DescribeTopicPartitionsResponseTopic(
            error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
        )
        return unknown, None
    indexes = sorted(index for index in known.partitions if index >= start)
    topic = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=known.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            _partition(broker, listener, index, known.partitions[index]) for index in indexes[:room]
        ],
    )
    return topic, indexes[room] if len(indexes) > room else None


def _partition(
    broker: Broker, listener: str, index: int, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    alive = [node for node in state.replicas if broker.endpoint_of(node, listener) is not None]
    answer = DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=broker.image.offline_replicas(state, alive),
    )
    if broker.endpoint_of(state.leader, listener) is None:
        answer.error_code = ErrorCode.leader_not_available
        answer.leader_id = NO_NODE
    return answer
