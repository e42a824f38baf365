"""Transactional batches of a Produce request: verification by the transaction coordinator.

Only the first batch of a transaction in a partition needs it; the log knows the others. One request
to the coordinator covers all such partitions of a Produce request. The coordinator's transient
errors become NOT_ENOUGH_REPLICAS, as in Kafka: every producer then retries the batch without
refreshing its metadata first.
"""

from collections.abc import Sequence
from typing import Final

from lograft.api.context import Context
from lograft.broker.broker import Broker
from lograft.broker.errors import NeedsCoordinator
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.model.types import TopicPartition
from lograft.storage.producers import UNVERIFIED, Verification
from lograft.wire.batches import TRANSACTIONAL_FLAG, unpack_header
from lograft.wire.messages.produce import ProduceRequest

#: From this version on producers handle TRANSACTION_ABORTABLE.
ABORTABLE_SINCE: Final = 11
#: From this version on the broker adds partitions to the transaction.
ADDS_SINCE: Final = 12
TRANSIENT: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_ATTRIBUTES, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE = 5, 9, 10, 11


def verify_immediately(
    broker: Broker,
    version: int,
    transactional_id: str | None,
    partition: Partition,
    records: memoryview,
) -> Verification | None:
    """Returns the verification for the append: None if the transaction is open in the partition,
    otherwise one that a coordinator in this process has confirmed. Raises NeedsCoordinator if it
    cannot confirm immediately, if the request has no `transactional_id`, or if it has several
    batches, because one request to the coordinator is better than one for each."""
    fields = unpack_header(records)
    producer = producer_id, epoch = fields[_PRODUCER_ID], fields[_PRODUCER_EPOCH]
    producers = partition.leader_log().producers
    # Without a producer id the log rejects the batch, whatever the coordinator responds.
    if producer_id < 0 or producers.has_open_transaction(producer_id, epoch):
        return None
    adds = version >= ADDS_SINCE
    if transactional_id is not None and (
        adds or broker.config.transaction_partition_verification_enable
    ):
        verification = producers.begin_verification(
            producer_id, epoch, fields[_BASE_SEQUENCE], adds=adds, now_ms=broker.clock.wall_ms()
        )
        topic_partition = partition.topic_partition
        if broker.verification.verify_now(transactional_id, producer, topic_partition, adds=adds):
            return verification
    raise NeedsCoordinator(f"a transaction begins in {partition.topic_partition}")


async def verify(
    context: Context, request: ProduceRequest, batches: Sequence[tuple[Partition, memoryview]]
) -> list[Verification | LograftError | None]:
    """Returns the verification for each batch, or the error for which it is rejected."""
    broker, version = context.broker, context.api_version
    verifications: list[Verification | LograftError | None] = [None] * len(batches)
    unverified: dict[int, TopicPartition] = {}
    producer: tuple[int, int] | None = None
    for slot, (partition, records) in enumerate(batches):
        fields = unpack_header(records)
        batch_producer = (fields[_PRODUCER_ID], fields[_PRODUCER_EPOCH])
        if not fields[_ATTRIBUTES] & TRANSACTIONAL_FLAG or batch_producer[0] < 0:
            continue
        producer = producer or batch_producer
        try:
            _check_request(request, batch_producer == producer)
            if version < ADDS_SINCE and not broker.config.transaction_partition_verification_enable:
                verifications[slot] = UNVERIFIED
                continue
            verification = _begin_verification(context, partition, records)
        except LograftError as error:
            verifications[slot] = error
            continue
        verifications[slot] = verification
        if verification is not None:
            unverified[slot] = partition.topic_partition
    if not unverified:
        return verifications
    assert producer is not None
    assert request.transactional_id is not None

    def restart_verifications() -> None:
        for slot in unverified:
            try:
                verifications[slot] = _begin_verification(context, *batches[slot])
            except LograftError as error:
                verifications[slot] = error

    codes = await broker.verification.verify(
        request.transactional_id,
        producer,
        list(unverified.values()),
        adds=version >= ADDS_SINCE,
        on_repeat=restart_verifications,
    )
    for slot, partition_name in unverified.items():
        if codes[partition_name]:
            verifications[slot] = _error_of(codes[partition_name], version)
    return verifications


def _begin_verification(
    context: Context, partition: Partition, records: memoryview
) -> Verification | None:
    fields = unpack_header(records)
    return partition.leader_log().producers.begin_verification(
        fields[_PRODUCER_ID],
        fields[_PRODUCER_EPOCH],
        fields[_BASE_SEQUENCE],
        adds=context.api_version >= ADDS_SINCE,
        now_ms=context.broker.clock.wall_ms(),
    )


def _check_request(request: ProduceRequest, is_same_producer: bool) -> None:
    if request.transactional_id is None:
        raise Rejected(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The request has a transactional batch, but no transactional id.",
        )
    if not is_same_producer:
        raise Rejected(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "The request has transactional batches of more than one producer.",
        )


def _error_of(code: ErrorCode, version: int) -> Rejected:
    if code in TRANSIENT:
        return Rejected(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The transaction coordinator cannot verify the partition now: {code.name}.",
        )
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    return Rejected(code, f"The transaction coordinator rejected the partition: {code.name}.")
