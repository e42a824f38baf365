"""AddOffsetsToTxn, versions 0-4: adds a group's offsets to a transaction.

Adds the group's partition of __consumer_offsets to the transaction. v2: PRODUCER_FENCED. v4:
TRANSACTION_ABORTABLE. With transaction protocol v2 producers rely on TxnOffsetCommit instead.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.producer_fencing import fencing_code_of
from lograft.api.types import group_of, transactional_id_of, whole_request
from lograft.model.errors import ErrorCode, LograftError
from lograft.security.authorization import GROUP_READ, TRANSACTIONAL_ID_WRITE
from lograft.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API: Final = Api(
    key=25,
    versions=range(5),
    needs=whole_request(TRANSACTIONAL_ID_WRITE, names=transactional_id_of)
    + whole_request(GROUP_READ, names=group_of),
)

FENCED_SINCE: Final = 2


async def handle(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    transactional_id, broker = request.transactional_id, context.broker
    if not transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    partitions = {broker.groups.topic: (broker.groups.partition_of(request.group_id),)}
    try:
        await broker.transactions.ask(
            transactional_id,
            lambda shard, ticket, _: shard.add_partitions(
                ticket,
                transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                partitions=partitions,
                client_version=0,
            ),
        )
    except LograftError as error:
        code = fencing_code_of(error, knows_fenced=context.api_version >= FENCED_SINCE)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()
