"""ListTransactions, versions 0-2: the transactional ids that this broker coordinates (KIP-664).

Filtered by state and producer id. v1: by minimum duration of the transaction (KIP-994). v2: by a
regular expression for the transactional id (KIP-1152).
"""

from typing import Final

from lograft.api.authorization import find_denied
from lograft.api.context import Api, Context
from lograft.api.types import each_item
from lograft.coordination.transaction_listing import TransactionFilter, list_matching
from lograft.security.authorization import TRANSACTIONAL_ID_DESCRIBE
from lograft.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

API: Final = Api(key=66, versions=range(3), needs=each_item(TRANSACTIONAL_ID_DESCRIBE))


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    filters = TransactionFilter(request)
    responses: list[ListTransactionsResponse] = await context.broker.transactions.ask_every(
        lambda shard, ticket, _: list_matching(shard, ticket, filters)
    )
    states = [state for response in responses for state in response.transaction_states]
    hidden = find_denied(
        context,
        TRANSACTIONAL_ID_DESCRIBE,
        (state.transactional_id for state in states),
        is_filter=True,
    )
    return ListTransactionsResponse(
        unknown_state_filters=filters.unknown_states,
        transaction_states=[state for state in states if state.transactional_id not in hidden],
    )
