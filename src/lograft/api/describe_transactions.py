"""DescribeTransactions, version 0: what becomes of some transactional ids (KIP-664).

Topics that the client may not see are left out.
"""

from typing import Final

from lograft.api.context import Api, Context, Resource, authorize
from lograft.api.errors import code_of
from lograft.api.operations import DESCRIBE
from lograft.coordination.transaction_listing import describe
from lograft.model.errors import ErrorCode, LograftError
from lograft.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

API: Final = Api(key=65, versions=range(1))


async def handle(
    context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            await _describe(context, transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


async def _describe(context: Context, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.invalid_request)
    if not authorize(context, DESCRIBE, Resource.transactional_id, transactional_id):
        return _refused(transactional_id, ErrorCode.transactional_id_authorization_failed)
    try:
        state: TransactionState = await context.broker.transactions.ask(
            transactional_id, lambda shard, ticket, _: describe(shard, ticket, transactional_id)
        )
    except LograftError as error:
        return _refused(transactional_id, code_of(error))
    state.topics = [
        topic for topic in state.topics if authorize(context, DESCRIBE, Resource.topic, topic.topic)
    ]
    return state


def _refused(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=code)


def error_response(
    request: DescribeTransactionsRequest, code: ErrorCode, message: str
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_refused(each, code) for each in request.transactional_ids]
    )
