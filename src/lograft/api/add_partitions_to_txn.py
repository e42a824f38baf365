"""AddPartitionsToTxn, versions 0-5: adds partitions to a transaction.

Up to v3 a producer sends it before it writes to a partition for the first time; if one partition
cannot be added, none is (OPERATION_NOT_ATTEMPTED for the others). v2: PRODUCER_FENCED. From v4 on
brokers send it, for many transactions at once: to verify that a transaction is open (verify_only),
or to add the partitions to which a producer of transaction protocol v2 has just produced. v5:
TRANSACTION_ABORTABLE.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, cast

from lograft.api.authorization import NO_NAMES, find_denied, is_allowed
from lograft.api.context import Api, Context
from lograft.api.producer_fencing import fencing_code_of
from lograft.api.types import each_item, whole_request
from lograft.coordination.transaction import EPOCH_BUMP_SINCE, partitions_of
from lograft.coordination.transaction_shard import TransactionShard
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import INTERNAL_TOPICS
from lograft.security.authorization import CLUSTER_ACTION, TOPIC_WRITE, TRANSACTIONAL_ID_WRITE
from lograft.wire.message import Message
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)


def is_from_broker(request: AddPartitionsToTxnRequest) -> bool:
    return bool(request.transactions)


API: Final = Api(
    key=24,
    versions=range(6),
    needs=whole_request(CLUSTER_ACTION, when=is_from_broker)
    + each_item(TRANSACTIONAL_ID_WRITE, TOPIC_WRITE),
)

FENCED_SINCE: Final = 2
BROKERS_SINCE: Final = 4
ABORTABLE_SINCE: Final = 5

Result: TypeAlias = AddPartitionsToTxnResult
#: Returns the error code of a partition.
CodeOf: TypeAlias = Callable[[str, int], ErrorCode]


def handle(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
    version = context.api_version
    if version >= BROKERS_SINCE:
        transactions = request.transactions
        # All decisions are made when this returns, so the next requests may be handled.
        context.allows_pipelining = True
    else:
        transactions = [_transaction_of(request)]
    replies = [_submit(context, transaction) for transaction in transactions]
    if all(isinstance(reply, Message) for reply in replies):
        return _response(cast(Sequence[Result], replies), version)
    return _wait(transactions, replies, version)


async def _wait(
    transactions: Sequence[AddPartitionsToTxnTransaction],
    replies: Sequence[Message | Awaitable[Message]],
    version: int,
) -> AddPartitionsToTxnResponse:
    results: list[Result] = []
    for transaction, reply in zip(transactions, replies, strict=True):
        try:
            result = reply if isinstance(reply, Message) else await reply
        except LograftError as error:
            result = _error_result(transaction, error, version)
        results.append(cast(Result, result))
    return _response(results, version)


def _submit(
    context: Context, transaction: AddPartitionsToTxnTransaction
) -> Message | Awaitable[Message]:
    version, transactional_id = context.api_version, transaction.transactional_id
    if not transactional_id:
        return _result(transaction, _always(ErrorCode.INVALID_REQUEST))
    if not is_allowed(context, TRANSACTIONAL_ID_WRITE, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _result(transaction, _always(code))
    invalid = _find_invalid(context, transaction)
    if invalid:
        other = ErrorCode.OPERATION_NOT_ATTEMPTED
        return _result(transaction, lambda topic, index: invalid.get((topic, index), other))
    partitions = partitions_of((topic.name, topic.partitions) for topic in transaction.topics)
    client_version = EPOCH_BUMP_SINCE if version >= BROKERS_SINCE else 0

    def decide(shard: TransactionShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        if transaction.verify_only:
            return shard.verify_partitions(
                ticket,
                transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                partitions=partitions,
            )
        return shard.add_partitions(
            ticket,
            transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            partitions=partitions,
            client_version=client_version,
        )

    try:
        return context.broker.transactions.ask_now(transactional_id, decide)
    except LograftError as error:
        return _error_result(transaction, error, version)


def _find_invalid(
    context: Context, transaction: AddPartitionsToTxnTransaction
) -> dict[tuple[str, int], ErrorCode]:
    """Returns the partitions that do not exist or to which the producer may not write."""
    image = context.broker.image
    invalid: dict[tuple[str, int], ErrorCode] = {}
    is_broker = context.api_version >= BROKERS_SINCE
    denied = (
        NO_NAMES
        if is_broker
        else find_denied(context, TOPIC_WRITE, (topic.name for topic in transaction.topics))
    )
    for topic in transaction.topics:
        topic_state = image.topic(topic.name)
        # Producers do not write offsets of groups themselves: group coordinators do.
        is_writable = is_broker or (topic.name not in INTERNAL_TOPICS and topic.name not in denied)
        for index in topic.partitions:
            if not is_writable:
                invalid[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic_state is None or index not in topic_state.partitions:
                invalid[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return invalid


def _transaction_of(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _response(results: Sequence[Result], version: int) -> AddPartitionsToTxnResponse:
    if version >= BROKERS_SINCE:
        if version < ABORTABLE_SINCE:
            _hide_abortable(results)
        return AddPartitionsToTxnResponse(results_by_transaction=list(results))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _hide_abortable(results: Sequence[Result]) -> None:
    for result in results:
        for topic in result.topic_results:
            for partition_result in topic.results_by_partition:
                if partition_result.partition_error_code == ErrorCode.TRANSACTION_ABORTABLE:
                    partition_result.partition_error_code = ErrorCode.INVALID_TXN_STATE


def _error_result(
    transaction: AddPartitionsToTxnTransaction, error: LograftError, version: int
) -> Result:
    return _result(
        transaction, _always(fencing_code_of(error, knows_fenced=version >= FENCED_SINCE))
    )


def _always(code: ErrorCode) -> CodeOf:
    return lambda topic, index: code


def _result(transaction: AddPartitionsToTxnTransaction, code_of: CodeOf) -> Result:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[_topic_result(topic, code_of) for topic in transaction.topics],
    )


def _topic_result(topic: AddPartitionsToTxnTopic, code_of: CodeOf) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=code_of(topic.name, index)
            )
            for index in topic.partitions
        ],
    )


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    """Brokers get a top-level error code; producers get one for each partition."""
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_topic_v3_and_below=[
            _topic_result(topic, _always(code)) for topic in request.v3_and_below_topics
        ],
    )
