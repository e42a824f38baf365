"""DescribeProducers, version 0: the active producers of partitions, on any replica (KIP-664).

Leader and followers both respond, so that an operator who looks for a hanging transaction can query
each of them.
"""

from typing import Final

from lograft.api.authorization import find_denied, permission_error
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.errors import NotLeader, PartitionOffline, UnknownPartition
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import ZERO_UUID
from lograft.security.authorization import TOPIC_READ
from lograft.storage.log import Log
from lograft.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

API: Final = Api(key=61, versions=range(1), needs=each_item(TOPIC_READ))


def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    hidden = find_denied(context, TOPIC_READ, (topic.name for topic in request.topics))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _error_response(index, permission_error(TOPIC_READ, topic.name))
                    if topic.name in hidden
                    else _describe(context.broker, topic.name, index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def error_response(
    request: DescribeProducersRequest, code: ErrorCode, message: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _error_response(index: int, error: LograftError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=code_of(error), error_message=str(error)
    )


def _describe(broker: Broker, topic: str, index: int) -> PartitionResponse:
    response = PartitionResponse(partition_index=index)
    try:
        response.active_producers = [
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in _log_of(broker, topic, index).producers.all()
        ]
    except LograftError as error:
        response.error_code = code_of(error)
        response.error_message = str(error)
    return response


def _log_of(broker: Broker, topic: str, index: int) -> Log:
    if broker.partition_state(topic, ZERO_UUID, index) is None:
        raise UnknownPartition(f"Partition {topic}-{index} does not exist.")
    partition = broker.partitions.get(topic, index)
    if partition is None:
        raise NotLeader(f"This broker has no replica of {topic}-{index}.")
    if partition.offline:
        raise PartitionOffline(partition.offline)
    if partition.log is None or partition.kept_offsets is not None:
        raise NotLeader(f"The log of {topic}-{index} is not open.")
    return partition.log
