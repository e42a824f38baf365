"""Requests of the admin client about transactions: ListTransactions and DescribeTransactions."""

from lograft.coordination.transaction import Transaction
from lograft.coordination.transaction_shard import TransactionShard
from lograft.coordination.transaction_states import BY_NAME
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.patterns import InvalidPattern, compile_pattern
from lograft.wire.messages import describe_transactions, list_transactions
from lograft.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def describe(shard: TransactionShard, ticket: Ticket, transactional_id: str) -> CoordinatorResult:
    found = shard.transactions.get(transactional_id)
    if found is None:
        raise Rejected(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"Transactional id {transactional_id} not found.",
        )
    described = describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.text,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=list(indexes))
            for topic, indexes in found.partitions.items()
        ],
    )
    return CoordinatorResult(replies=((ticket, described),))


class TransactionFilter:
    """The filters of a ListTransactions request; an empty filter matches all transactions."""

    def __init__(self, request: ListTransactionsRequest) -> None:
        """Raises Rejected for an invalid pattern."""
        self.unknown_states = [name for name in request.state_filters if name not in BY_NAME]
        self._states = frozenset(BY_NAME[name] for name in request.state_filters if name in BY_NAME)
        # A request with only unknown states matches no transactions.
        self._any_state = not request.state_filters
        self._producer_ids = frozenset(request.producer_id_filters)
        self._longer_than_ms = request.duration_filter
        self._pattern = request.transactional_id_pattern
        if self._pattern:
            try:
                compile_pattern(self._pattern)
            except InvalidPattern as error:
                raise Rejected(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"{self._pattern!r} is not a valid regular expression: {error}.",
                ) from None

    def select(self, shard: TransactionShard, *, wall_ms: int) -> dict[str, Transaction]:
        """The matching transactions by transactional id. Raises NeedsLongWork."""
        found = {
            transactional_id: transaction
            for transactional_id, transaction in shard.transactions.items()
            if (self._any_state or transaction.state in self._states)
            and (not self._producer_ids or transaction.producer_id in self._producer_ids)
            and (
                self._longer_than_ms < 0 or wall_ms - transaction.started_ms > self._longer_than_ms
            )
        }
        if self._pattern:
            matched = shard.matching.match_names([self._pattern], found, wall_ms)[self._pattern]
            found = {key: transaction for key, transaction in found.items() if key in matched.names}
        return found


def list_matching(
    shard: TransactionShard, ticket: Ticket, filters: TransactionFilter
) -> CoordinatorResult:
    """Lists the matching transactions of one shard. Raises NeedsLongWork."""
    wall_ms = shard.context.wall_ms()
    states = [
        list_transactions.TransactionState(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.text,
        )
        for transactional_id, transaction in filters.select(shard, wall_ms=wall_ms).items()
    ]
    return CoordinatorResult(
        replies=((ticket, ListTransactionsResponse(transaction_states=states)),)
    )
