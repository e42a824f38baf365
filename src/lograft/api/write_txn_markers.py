"""WriteTxnMarkers, versions 1-2: a transaction coordinator ends transactions in this broker's
partitions.

Appends one control batch for each partition and transaction, and responds when all are committed. A
fenced coordinator (older coordinator epoch) gets TRANSACTION_COORDINATOR_FENCED, a marker with an
old producer epoch INVALID_PRODUCER_EPOCH; a retry writes the marker again, which has no effect. If
a partition cannot accept markers now, its coordinator retries. Partitions of __consumer_offsets
belong to a group coordinator, which applies the end of the transaction too. v2: adds
TransactionVersion; with transaction version 2, the marker carries the bumped producer epoch
(KIP-1228).
"""

from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import whole_request
from lograft.broker.broker import Broker
from lograft.broker.partitions.partition import Partition
from lograft.coordination.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import Epoch, Offset, TopicPartition
from lograft.security.authorization import CLUSTER_ACTION, CLUSTER_ALTER
from lograft.storage.types import TransactionEnd
from lograft.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API: Final = Api(key=27, versions=range(1, 3), needs=whole_request(CLUSTER_ALTER, CLUSTER_ACTION))

#: Errors of a group coordinator that cannot accept a marker now.
NOT_READY: Final = (NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable)


class Pending(NamedTuple):
    """Appended, not yet committed."""

    result: WritableTxnMarkerPartitionResult
    partition: Partition
    end: Offset
    leader_epoch: Epoch


def handle(
    context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse]:
    pending: list[Pending] = []
    response = WriteTxnMarkersResponse(
        markers=[_write(context.broker, marker, pending) for marker in request.markers]
    )
    if not pending:
        return response
    # The markers are in their logs, in the order of the requests: the next may be handled.
    context.allows_pipelining = True
    return _finish(context.broker, response, pending)


async def _finish(
    broker: Broker, response: WriteTxnMarkersResponse, pending: list[Pending]
) -> WriteTxnMarkersResponse:
    deadline_ms = broker.clock.mono_ms() + broker.config.request_timeout_ms
    for result, partition, end, leader_epoch in pending:
        timeout_ms = max(0, deadline_ms - broker.clock.mono_ms())
        try:
            await partition.wait_committed(end, timeout_ms=timeout_ms, leader_epoch=leader_epoch)
        except LograftError as error:
            result.error_code = code_of(error)
    return response


def _write(
    broker: Broker, marker: WritableTxnMarker, pending: list[Pending]
) -> WritableTxnMarkerResult:
    end = TransactionEnd(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    result = WritableTxnMarkerResult(producer_id=marker.producer_id)
    for topic in marker.topics:
        partition_results = []
        for index in topic.partition_indexes:
            partition_result = WritableTxnMarkerPartitionResult(partition_index=index)
            partition_results.append(partition_result)
            try:
                topic_partition = TopicPartition(topic.name, index)
                partition, end_offset = broker.coordinators.append_marker(topic_partition, end)
                if not partition.is_acknowledged(end_offset, acks_all=True):
                    pending.append(
                        Pending(partition_result, partition, end_offset, partition.leader_epoch)
                    )
            except NOT_READY:
                # The transaction coordinator looks up leaders, not group coordinators.
                partition_result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            except LograftError as error:
                partition_result.error_code = code_of(error)
        result.topics.append(
            WritableTxnMarkerTopicResult(name=topic.name, partitions=partition_results)
        )
    return result


def error_response(
    request: WriteTxnMarkersRequest, code: ErrorCode, message: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
