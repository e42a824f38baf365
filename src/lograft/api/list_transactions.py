"""ListTransactions, versions 0-2: the transactional ids that this broker coordinates (KIP-664).

Those in some states, of some producers. v1: whose transaction has lasted longer than some time
(KIP-994). v2: whose name a regular expression matches (KIP-1152).
"""

from typing import Final

from lograft.api.context import Api, Context, Resource, authorize
from lograft.api.operations import DESCRIBE
from lograft.coordination.transaction_listing import Wanted, listed
from lograft.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

API: Final = Api(key=66, versions=range(3))


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    wanted = Wanted(request)
    answers: list[ListTransactionsResponse] = await context.broker.transactions.ask_every(
        lambda shard, ticket, _: listed(shard, ticket, wanted)
    )
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states,
        transaction_states=[
            state
            for answer in answers
            for state in answer.transaction_states
            if authorize(context, DESCRIBE, Resource.transactional_id, state.transactional_id)
        ],
    )
