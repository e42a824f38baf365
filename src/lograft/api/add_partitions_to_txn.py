"""AddPartitionsToTxn, versions 0-5: what a transaction is about to write to.

Up to v3 a producer asks, before it writes to a partition for the first time; one partition that
cannot be added keeps the others out (OPERATION_NOT_ATTEMPTED). v2: PRODUCER_FENCED. From v4 on
brokers ask, for many transactions at once: to verify a producer's word (verify_only), or to add
what a producer of transaction protocol v2 has just sent them. v5: TRANSACTION_ABORTABLE.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, cast

from lograft.api.authorization import NO_NAMES, find_denied, is_allowed
from lograft.api.context import Api, Context
from lograft.api.producer_fencing import told
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
#: What a partition is told.
CodeOf: TypeAlias = Callable[[str, int], ErrorCode]


def handle(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
    version = context.api_version
    if version >= BROKERS_SINCE:
        asked = request.transactions
        # Everything is decided when this returns: the questions of other producers may come.
        context.allows_pipelining = True
    else:
        asked = [_asked_by_producer(request)]
    found = [_ask(context, transaction) for transaction in asked]
    if all(isinstance(one, Message) for one in found):
        return _response(cast(Sequence[Result], found), version)
    return _wait(asked, found, version)


async def _wait(
    asked: Sequence[AddPartitionsToTxnTransaction],
    found: Sequence[Message | Awaitable[Message]],
    version: int,
) -> AddPartitionsToTxnResponse:
    results: list[Result] = []
    for transaction, one in zip(asked, found, strict=True):
        try:
            result = one if isinstance(one, Message) else await one
        except LograftError as error:
            result = _refused(transaction, error, version)
        results.append(cast(Result, result))
    return _response(results, version)


def _ask(
    context: Context, transaction: AddPartitionsToTxnTransaction
) -> Message | Awaitable[Message]:
    version, transactional_id = context.api_version, transaction.transactional_id
    if not transactional_id:
        return _result(transaction, _always(ErrorCode.INVALID_REQUEST))
    if not is_allowed(context, TRANSACTIONAL_ID_WRITE, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _result(transaction, _always(code))
    unfit = _unfit(context, transaction)
    if unfit:
        rest = ErrorCode.OPERATION_NOT_ATTEMPTED
        return _result(transaction, lambda topic, index: unfit.get((topic, index), rest))
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
        return _refused(transaction, error, version)


def _unfit(
    context: Context, transaction: AddPartitionsToTxnTransaction
) -> dict[tuple[str, int], ErrorCode]:
    """The partitions that the producer may not write to, or that are not there."""
    image = context.broker.image
    found: dict[tuple[str, int], ErrorCode] = {}
    is_broker = context.api_version >= BROKERS_SINCE
    denied = (
        NO_NAMES
        if is_broker
        else find_denied(context, TOPIC_WRITE, (topic.name for topic in transaction.topics))
    )
    for topic in transaction.topics:
        known = image.topic(topic.name)
        # Producers write no offsets of groups themselves: coordinators do it for them.
        is_writable = is_broker or (topic.name not in INTERNAL_TOPICS and topic.name not in denied)
        for index in topic.partitions:
            if not is_writable:
                found[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or index not in known.partitions:
                found[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _asked_by_producer(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
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
            for answer in topic.results_by_partition:
                if answer.partition_error_code == ErrorCode.TRANSACTION_ABORTABLE:
                    answer.partition_error_code = ErrorCode.INVALID_TXN_STATE


def _refused(
    transaction: AddPartitionsToTxnTransaction, error: LograftError, version: int
) -> Result:
    return _result(transaction, _always(told(error, knows_fenced=version >= FENCED_SINCE)))


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
    """For brokers one code says it; producers look at the partitions."""
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_topic_v3_and_below=[
            _topic_result(topic, _always(code)) for topic in request.v3_and_below_topics
        ],
    )
