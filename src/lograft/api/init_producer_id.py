"""InitProducerId, versions 0-5: returns a producer id and epoch.

Without a transactional id every request gets a new producer id with epoch 0. With one, the
transaction coordinator returns the same id with the next epoch, which fences the producer with the
previous epoch, and aborts its open transaction (CONCURRENT_TRANSACTIONS until that is done). v3:
the producer sends its current id and epoch, to continue after an error (KIP-360). v4:
PRODUCER_FENCED. v6, only with unstable.api.versions.enable: two-phase commit (KIP-939) as far as
Kafka 4.3 implements it: no timeout if `transaction.two.phase.commit.enable` allows that; a prepared
transaction cannot be kept (UNSUPPORTED_VERSION).
"""

from typing import Final

from lograft.api.authorization import is_allowed, is_allowed_on_any
from lograft.api.context import Api, Context
from lograft.api.producer_fencing import fencing_code_of
from lograft.api.types import each_item, transactional_id_of, whole_request
from lograft.broker.errors import ControllerUnreachable
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from lograft.security.authorization import (
    CLUSTER_IDEMPOTENT_WRITE,
    TOPIC_WRITE,
    TRANSACTIONAL_ID_TWO_PHASE_COMMIT,
    TRANSACTIONAL_ID_WRITE,
)
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def is_two_phase(request: InitProducerIdRequest) -> bool:
    return request.enable2_pc


API: Final = Api(
    key=22,
    versions=range(6),
    needs=whole_request(TRANSACTIONAL_ID_WRITE, names=transactional_id_of)
    + whole_request(TRANSACTIONAL_ID_TWO_PHASE_COMMIT, names=transactional_id_of, when=is_two_phase)
    + each_item(CLUSTER_IDEMPOTENT_WRITE, TOPIC_WRITE),
)

FENCED_SINCE: Final = 4


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    if transactional_id == "":
        return _error_response(ErrorCode.INVALID_REQUEST)
    if transactional_id is None and not (
        is_allowed_on_any(context, TOPIC_WRITE) or is_allowed(context, CLUSTER_IDEMPOTENT_WRITE)
    ):
        return _error_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        return _error_response(ErrorCode.INVALID_REQUEST)
    producer_ids = context.broker.producer_ids
    try:
        if transactional_id is None:
            return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
        await producer_ids.wait_some()
    except (ControllerUnreachable, Rejected):
        # Clients retry after this error; they do not expect one of the controller's here.
        return _error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        reply: InitProducerIdResponse = await context.broker.transactions.ask(
            transactional_id, lambda shard, ticket, _: shard.init_producer_id(ticket, request)
        )
    except LograftError as error:
        return _error_response(
            fencing_code_of(error, knows_fenced=context.api_version >= FENCED_SINCE)
        )
    return reply


def error_response(
    request: InitProducerIdRequest, code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return _error_response(code)


def _error_response(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
