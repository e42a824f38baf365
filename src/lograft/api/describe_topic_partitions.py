"""DescribeTopicPartitions, version 0: topics in the order of their names, in pages.

A response has at most `max.request.partition.size.limit` partitions; its cursor is the start of the
next page. No topics in the request means all of them. For partitions that this broker leads, tags
of Lograft add the leader's view of each replica: log start and end offset, and how long ago it last
fetched and last was caught up.
"""

from typing import Final

from lograft.api.authorization import authorized_operations, find_denied
from lograft.api.context import Api, Context
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.partitions.partition import Partition
from lograft.metadata.mode_switch import status
from lograft.metadata.topic_names import check_topic_name
from lograft.metadata.types import PartitionState
from lograft.model.errors import ErrorCode, InvalidInput, Rejected
from lograft.model.types import INTERNAL_TOPICS, NO_NODE, NO_OFFSET, NodeId
from lograft.replication.replica_view import NEVER_MS, ReplicaStatus
from lograft.replication.types import NO_BROKER_EPOCH
from lograft.security.authorization import TOPIC_DESCRIBE, ResourceType
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

API: Final = Api(key=75, versions=range(1), needs=each_item(TOPIC_DESCRIBE))

#: Status of a replica that has not fetched from this leader yet.
NOTHING_KNOWN: Final = ReplicaStatus(
    NO_NODE, NO_OFFSET, NO_OFFSET, -1, False, NEVER_MS, NEVER_MS, NO_BROKER_EPOCH
)


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, _message: str
) -> DescribeTopicPartitionsResponse:
    """The response has no top-level error code, so each requested topic has the error."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code)
            for topic in request.topics
        ],
        next_cursor=None,
    )


def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    broker: Broker = context.broker
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidInput(f"Partition {cursor.partition_index} in the cursor is negative.")
    limit = min(broker.config.max_request_partition_size_limit, request.response_partition_limit)
    capacity = max(1, limit)
    all_topics = not request.topics
    names = sorted(
        broker.image.topic_ids if all_topics else {topic.name for topic in request.topics}
    )
    hidden = find_denied(context, TOPIC_DESCRIBE, names, is_filter=all_topics)
    if all_topics and hidden:
        names = [name for name in names if name not in hidden]
    response = DescribeTopicPartitionsResponse()
    for name in names:
        start = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            if name == cursor.topic_name:
                start = cursor.partition_index
        if capacity <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=0
            )
            break
        if name in hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.topics.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=code))
            continue
        topic, next_partition = _describe(context, name, start, capacity)
        response.topics.append(topic)
        capacity -= len(topic.partitions)
        if next_partition is not None:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=next_partition
            )
            break
    return response


def _describe(
    context: Context, name: str, start: int, capacity: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """Returns the topic from partition `start` on, and the first partition that did not fit."""
    broker: Broker = context.broker
    operations = authorized_operations(context, ResourceType.TOPIC, name)
    state = broker.image.topic(name)
    if state is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_topic_name(name)
        except Rejected as error:
            code = error.code
        unknown = DescribeTopicPartitionsResponseTopic(
            error_code=code, name=name, topic_authorized_operations=operations
        )
        return unknown, None
    indexes = sorted(index for index in state.partitions if index >= start)
    topic = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=state.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
        partitions=[
            _partition(broker, context.listener, index, state.partitions[index])
            for index in indexes[:capacity]
        ],
    )
    for response in topic.partitions:
        mode = status(broker.image, state, response.partition_index)
        response.replication_mode, response.desired_mode, response.mode_reason = mode
        partition = broker.partitions.get_by_id(state.topic_id, response.partition_index)
        if partition is not None and partition.leader is not None:
            _add_view(response, partition, broker.clock.mono_ms())
    return topic, indexes[capacity] if len(indexes) > capacity else None


def _partition(
    broker: Broker, listener: str, index: int, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    alive = [node for node in state.replicas if broker.endpoint_of(node, listener) is not None]
    response = DescribeTopicPartitionsResponsePartition(
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
        response.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        response.leader_id = NO_NODE
    return response


def _add_view(
    response: DescribeTopicPartitionsResponsePartition, partition: Partition, now_ms: int
) -> None:
    """Adds the leader's view of the replicas, in the order of `replica_nodes`."""
    view = {status.node_id: status for status in partition.statuses()}
    response.high_watermark = partition.high_watermark
    for node in response.replica_nodes:
        status = view.get(NodeId(node), NOTHING_KNOWN)
        response.replica_log_start_offsets.append(status.log_start_offset)
        response.replica_end_offsets.append(status.end_offset)
        response.replica_last_fetch_ages_ms.append(_age_ms(status.last_fetch_ms, now_ms))
        response.replica_last_caught_up_ages_ms.append(_age_ms(status.last_caught_up_ms, now_ms))


def _age_ms(then_ms: int, now_ms: int) -> int:
    return -1 if then_ms == NEVER_MS else max(0, now_ms - then_ms)
