"""InitProducerId, versions 0-5: an id for an idempotent producer.

Without a transactional id every call gives a new producer id with epoch 0, whatever the producer
had before. With one, the transaction coordinator decides, which this broker does not have yet:
COORDINATOR_NOT_AVAILABLE. (v6 is unstable in Kafka 4.3 and not advertised.)
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.errors import code_of
from lograft.broker.errors import ControllerUnreachable
from lograft.metadata.errors import Refused
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API: Final = Api(key=22, versions=range(6))


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.invalid_request)
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        return _refused(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return _refused(ErrorCode.coordinator_not_available)
    try:
        producer_id = await context.broker.producer_ids.next()
    except (ControllerUnreachable, Refused):
        # What clients wait out; they do not expect to need the controller here.
        return _refused(ErrorCode.coordinator_load_in_progress)
    except LograftError as error:
        return _refused(code_of(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
