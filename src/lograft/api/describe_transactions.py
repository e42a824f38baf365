"""DescribeTransactions, version 0: the state of transactional ids (KIP-664).

Topics that the client may not describe are omitted.
"""

from typing import Final

from lograft.api.authorization import find_denied
from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.api.types import each_item
from lograft.coordination.transaction_listing import describe
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import TOPIC_DESCRIBE, TRANSACTIONAL_ID_DESCRIBE
from lograft.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

API: Final = Api(
    key=65, versions=range(1), needs=each_item(TRANSACTIONAL_ID_DESCRIBE, TOPIC_DESCRIBE)
)


async def handle(
    context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    denied = find_denied(
        context, TRANSACTIONAL_ID_DESCRIBE, filter(None, request.transactional_ids)
    )
    return DescribeTransactionsResponse(
        transaction_states=[
            _error_state(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if transactional_id in denied
            else await _describe(context, transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


async def _describe(context: Context, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return _error_state(transactional_id, ErrorCode.INVALID_REQUEST)
    try:
        state: TransactionState = await context.broker.transactions.ask(
            transactional_id, lambda shard, ticket, _: describe(shard, ticket, transactional_id)
        )
    except LograftError as error:
        return _error_state(transactional_id, code_of(error))
    topics = (topic.topic for topic in state.topics)
    hidden = find_denied(context, TOPIC_DESCRIBE, topics, is_filter=True)
    if hidden:
        state.topics = [topic for topic in state.topics if topic.topic not in hidden]
    return state


def _error_state(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=code)


def error_response(
    request: DescribeTransactionsRequest, code: ErrorCode, message: str
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _error_state(transactional_id, code) for transactional_id in request.transactional_ids
        ]
    )
