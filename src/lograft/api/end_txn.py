"""EndTxn, versions 0-5: a producer commits or aborts its transaction.

Responds when the decision is committed; the markers are written later. v2: PRODUCER_FENCED. v4:
TRANSACTION_ABORTABLE. v5 (transaction protocol v2): returns the producer's next epoch, or a new
producer id once the epochs are exhausted.
"""

from collections.abc import Awaitable, Coroutine
from typing import Any, Final, cast

from lograft.api.context import Api, Context
from lograft.api.producer_fencing import fencing_code_of
from lograft.api.types import transactional_id_of, whole_request
from lograft.coordination.transaction import EPOCH_BUMP_SINCE
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import TRANSACTIONAL_ID_WRITE
from lograft.wire.message import Message
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

API: Final = Api(
    key=26,
    versions=range(6),
    needs=whole_request(TRANSACTIONAL_ID_WRITE, names=transactional_id_of),
)

FENCED_SINCE: Final = 2
BUMPS_SINCE: Final = 5


def handle(
    context: Context, request: EndTxnRequest
) -> EndTxnResponse | Coroutine[Any, Any, EndTxnResponse]:
    transactional_id, version = request.transactional_id, context.api_version
    if not transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    client_version = EPOCH_BUMP_SINCE if version >= BUMPS_SINCE else 0
    try:
        reply = context.broker.transactions.ask_now(
            transactional_id,
            lambda shard, ticket, _: shard.end_transaction(
                ticket, request, client_version=client_version
            ),
        )
    except LograftError as error:
        return _error_response(error, version)
    if isinstance(reply, Message):
        return cast(EndTxnResponse, reply)
    return _wait(reply, version)


async def _wait(reply: Awaitable[Message], version: int) -> EndTxnResponse:
    try:
        return cast(EndTxnResponse, await reply)
    except LograftError as error:
        return _error_response(error, version)


def _error_response(error: LograftError, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=fencing_code_of(error, knows_fenced=version >= FENCED_SINCE))
