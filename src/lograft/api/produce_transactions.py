"""The batches of transactions in a Produce request: who must ask the coordinator, and what then.

Only the first batch of a transaction in a partition asks; the log knows of the others. One question
for all partitions of a request that begin. Errors of the coordinator that pass by themselves become
NOT_ENOUGH_REPLICAS, as in Kafka: every producer repeats its batch then, without looking for a new
leader first.
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

#: From here on producers know TRANSACTION_ABORTABLE.
ABORTABLE_SINCE: Final = 11
#: From here on producers leave adding partitions to the broker.
ADDS_SINCE: Final = 12
PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_ATTRIBUTES, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE = 5, 9, 10, 11


def verified_now(
    broker: Broker,
    version: int,
    transactional_id: str | None,
    partition: Partition,
    records: memoryview,
) -> Verification | None:
    """What the batch brings along: nothing if its transaction is open in the partition, or the word
    of a coordinator in this process that agrees at once. Raises NeedsCoordinator otherwise, and
    where the request says no `transactional_id`, or holds more than this batch: for several one
    question is better than one for each."""
    fields = unpack_header(records)
    producer = producer_id, epoch = fields[_PRODUCER_ID], fields[_PRODUCER_EPOCH]
    producers = partition.leader_log().producers
    # Without a producer id it is refused by the log, whoever agrees.
    if producer_id < 0 or producers.has_open_transaction(producer_id, epoch):
        return None
    adds = version >= ADDS_SINCE
    if transactional_id is not None and (
        adds or broker.config.transaction_partition_verification_enable
    ):
        word = producers.begin_verification(
            producer_id, epoch, fields[_BASE_SEQUENCE], adds=adds, now_ms=broker.clock.wall_ms()
        )
        where = partition.topic_partition
        if broker.verification.verify_now(transactional_id, producer, where, adds=adds):
            return word
    raise NeedsCoordinator(f"a transaction begins in {partition.topic_partition}")


async def verify(
    context: Context, request: ProduceRequest, batches: Sequence[tuple[Partition, memoryview]]
) -> list[Verification | LograftError | None]:
    """For each batch: what to append it with, or why that must not be."""
    broker, version = context.broker, context.api_version
    words: list[Verification | LograftError | None] = [None] * len(batches)
    asked: dict[int, TopicPartition] = {}
    producer: tuple[int, int] | None = None
    for slot, (partition, records) in enumerate(batches):
        fields = unpack_header(records)
        mine = (fields[_PRODUCER_ID], fields[_PRODUCER_EPOCH])
        if not fields[_ATTRIBUTES] & TRANSACTIONAL_FLAG or mine[0] < 0:
            continue
        producer = producer or mine
        try:
            _check_request(request, mine == producer)
            if version < ADDS_SINCE and not broker.config.transaction_partition_verification_enable:
                words[slot] = UNVERIFIED
                continue
            word = _begin(context, partition, records)
        except LograftError as error:
            words[slot] = error
            continue
        words[slot] = word
        if word is not None:
            asked[slot] = partition.topic_partition
    if not asked:
        return words
    assert producer is not None
    assert request.transactional_id is not None

    def begin_again() -> None:
        for slot in asked:
            try:
                words[slot] = _begin(context, *batches[slot])
            except LograftError as error:
                words[slot] = error

    found = await broker.verification.verify(
        request.transactional_id,
        producer,
        list(asked.values()),
        adds=version >= ADDS_SINCE,
        on_repeat=begin_again,
    )
    for slot, partition_name in asked.items():
        if found[partition_name]:
            words[slot] = _told(found[partition_name], version)
    return words


def _begin(context: Context, partition: Partition, records: memoryview) -> Verification | None:
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
            "a batch of a transaction in a request that does not say whose it is",
        )
    if not is_same_producer:
        raise Rejected(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "a request holds the transactions of more than one producer",
        )


def _told(code: ErrorCode, version: int) -> Rejected:
    if code in PASSING:
        return Rejected(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the coordinator of the transaction cannot be asked now: {code.name}",
        )
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    return Rejected(code, f"the coordinator of the transaction says {code.name}")
