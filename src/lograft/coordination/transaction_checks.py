"""Checks of requests about a transaction, and the results of their partitions."""

from lograft.coordination.transaction import (
    EPOCH_BUMP_SINCE,
    LAST_EPOCH,
    Partitions,
    Transaction,
)
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)


def reject_pending(transaction: Transaction) -> None:
    if transaction.is_pending:
        raise Rejected(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            "The previous transaction is still being completed.",
        )


def check_identity(transaction: Transaction, producer_id: int, epoch: int) -> None:
    """Checks that the request comes from this producer and, as far as the epoch shows, belongs to
    this transaction."""
    if producer_id != transaction.producer_id:
        raise Rejected(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"The transactional id belongs to producer {transaction.producer_id},"
            f" not {producer_id}.",
        )
    if epoch != transaction.epoch:
        raise producer_fenced(transaction, producer_id, epoch)


def producer_fenced(transaction: Transaction, producer_id: int, epoch: int) -> Rejected:
    return Rejected(
        ErrorCode.PRODUCER_FENCED,
        f"Producer {producer_id} with epoch {epoch} was fenced: the transactional id is now used by"
        f" producer {transaction.producer_id} with epoch {transaction.epoch}.",
    )


def invalid_state(transaction: Transaction, *, committed: bool) -> Rejected:
    action = "commit" if committed else "abort"
    return Rejected(
        ErrorCode.INVALID_TXN_STATE,
        f"Cannot {action} a transaction in state {transaction.state.text}.",
    )


def is_ended_by(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether the transaction of this epoch is complete: its end gave the producer the next epoch,
    or a new id if the epochs were exhausted."""
    if not transaction.is_complete or transaction.client_version < EPOCH_BUMP_SINCE:
        return False
    if producer_id == transaction.producer_id:
        return epoch + 1 == transaction.epoch
    return (
        producer_id == transaction.previous_producer_id
        and epoch == LAST_EPOCH
        and transaction.epoch == 0
    )


def partition_results(
    transactional_id: str, partitions: Partitions, among: Transaction | None = None
) -> AddPartitionsToTxnResult:
    """Results for the requested partitions. Those that are not part of the transaction `among` get
    an error after which the producer can abort."""
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=ErrorCode.NONE
                        if among is None or among.has(topic, index)
                        else ErrorCode.TRANSACTION_ABORTABLE,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in partitions.items()
        ],
    )
