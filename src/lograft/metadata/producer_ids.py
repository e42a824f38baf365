"""Allocates blocks of producer ids to brokers."""

from typing import Final

from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from lograft.wire.records.producer_ids_record import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise Rejected(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered."
        )
    if broker.epoch != request.broker_epoch:
        raise Rejected(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {request.broker_id} is registered with epoch {broker.epoch},"
            f" not {request.broker_epoch}.",
        )
    start = image.producer_ids_next
    if start > PRODUCER_ID_MAX - BLOCK_SIZE:
        raise Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_SIZE,
    )
    reply = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return ControllerResult((record,), reply)
