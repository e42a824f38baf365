"""Why a request about a transaction is refused, and what its partitions are told."""

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


def refuse_pending(transaction: Transaction) -> None:
    if transaction.is_pending:
        raise Rejected(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            "The transaction before is decided, and its markers are being written.",
        )


def check_identity(transaction: Transaction, producer_id: int, epoch: int) -> None:
    """That the request is of this producer, and of this transaction as far as the epoch tells."""
    if producer_id != transaction.producer_id:
        raise Rejected(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"The transactional id belongs to producer {transaction.producer_id},"
            f" not {producer_id}.",
        )
    if epoch != transaction.epoch:
        raise fenced_out(transaction, producer_id, epoch)


def fenced_out(transaction: Transaction, producer_id: int, epoch: int) -> Rejected:
    return Rejected(
        ErrorCode.PRODUCER_FENCED,
        f"Producer {producer_id} with epoch {epoch} is shut out: the transactional id is at"
        f" producer {transaction.producer_id}, epoch {transaction.epoch}.",
    )


def wrong_state(transaction: Transaction, *, committed: bool) -> Rejected:
    wish = "commit" if committed else "abort"
    return Rejected(
        ErrorCode.INVALID_TXN_STATE, f"There is nothing to {wish} in {transaction.state.name}."
    )


def is_ended_by(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether it is over, and was the one of this epoch: its end gave the producer the next epoch,
    or the next id where the epochs were used up."""
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
    """The partitions as they were asked for. `among`: those that this transaction does not have
    are an error that the producer can abort from."""
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
