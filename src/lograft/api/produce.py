"""Produce, versions 3-13. Appends each batch immediately; waits only as long as acks requires.

acks=0 has no response; an error closes the connection, which is all that such a producer can
notice. acks=1 responds when the leader has appended the records, acks=-1 when they are committed; a
topic with flush.messages=1 is fsynced before either. An error of one partition does not affect
others. The first batch of a transaction in a partition waits until the transaction coordinator has
verified it (`produce_transactions`). v7: zstd. v8: error messages, also for single records of a
batch (KIP-467). v10: the new leader with NOT_LEADER_OR_FOLLOWER (KIP-951). v11:
TRANSACTION_ABORTABLE. v12: adds its partitions to the transaction implicitly (KIP-890). v13: topic
ids.
"""

from collections.abc import Coroutine, Iterator
from typing import Any, Final, NamedTuple

from lograft.api.authorization import NO_NAMES, find_denied, is_allowed, permission_error
from lograft.api.context import Api, Context
from lograft.api.produce_rejections import RecordErrorBudget, set_error
from lograft.api.produce_transactions import verify, verify_immediately
from lograft.api.types import each_item
from lograft.broker.broker import Broker
from lograft.broker.control.topic_creation import grow_on_demand
from lograft.broker.errors import (
    InvalidTopic,
    NeedsCoordinator,
    PartitionMissing,
    PartitionNotYetOpen,
    WaitTimedOut,
)
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import CloseConnection
from lograft.model.types import INTERNAL_TOPICS, NO_OFFSET, Epoch, Offset
from lograft.model.uuids import uuid_to_text
from lograft.security.authorization import TOPIC_WRITE, TRANSACTIONAL_ID_WRITE
from lograft.storage.errors import (
    InvalidRecord,
    NeedsWorker,
    UnsupportedCompression,
)
from lograft.storage.producers import Verification
from lograft.storage.types import AppendResult
from lograft.storage.validation import AppendRules
from lograft.wire.batches import CODEC_MASK, HEADER_SIZE, MAGIC, TRANSACTIONAL_FLAG
from lograft.wire.compression import Codec
from lograft.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

API: Final = Api(key=0, versions=range(3, 14), needs=each_item(TRANSACTIONAL_ID_WRITE, TOPIC_WRITE))

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
ZSTD_SINCE: Final = 7
TOPIC_IDS_SINCE: Final = 13
LEADER_HINTS_SINCE: Final = 10
#: Positions of the batch's magic byte and of the low byte of its attributes.
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 22
NO_BATCH: Final = "A Produce request needs exactly one record batch for each partition."
#: Kafka's admin tools may write to internal topics under this name.
ADMIN_CLIENT_ID: Final = "__admin_client"


class Pending(NamedTuple):
    """A batch that has been appended, but not acknowledged."""

    response: PartitionProduceResponse
    partition: Partition
    end: Offset
    #: The epoch of the append: what a later leader commits at these offsets may be other records.
    leader_epoch: Epoch


class Deferred(NamedTuple):
    """A batch that has not been appended yet: its partition is being created or opened, a worker
    must validate its records, or a coordinator must verify its transaction."""

    response: PartitionProduceResponse
    topic: TopicProduceData
    data: PartitionProduceData


def handle(
    context: Context, request: ProduceRequest
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    acks = request.acks
    if not -1 <= acks <= 1:
        message = f"acks must be -1, 0 or 1, not {acks}."
        return _reject_all(request, ErrorCode.INVALID_REQUIRED_ACKS, message)
    denied_topics = NO_NAMES
    if context.authorizer is not None:
        if not _may_write_transaction(context, request):
            return _reject_transaction(request)
        denied_topics = find_denied(context, TOPIC_WRITE, _topic_names(context, request))
    broker: Broker = context.broker
    now_ms = broker.clock.wall_ms()
    version = context.api_version
    failed: LograftError | None = None
    pending: list[Pending] = []
    deferred: list[Deferred] = []
    has_one_batch = len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1
    budget = RecordErrorBudget()
    topics = []
    for topic in request.topic_data:
        partition_responses = []
        for data in topic.partition_data:
            partition_response = PartitionProduceResponse(index=data.index, base_offset=-1)
            partition_responses.append(partition_response)
            appending = None
            try:
                if denied_topics and _name_of(context, topic) in denied_topics:
                    # A client that uses the id may not know the name.
                    shown = topic.name or uuid_to_text(topic.topic_id)
                    raise permission_error(TOPIC_WRITE, shown)
                partition = _partition_of(broker, topic, data.index, version)
                records = _check_records(context, partition, data)
                verification = None
                if records[ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
                    transactional_id = request.transactional_id if has_one_batch else None
                    verification = verify_immediately(
                        broker, version, transactional_id, partition, records
                    )
                appending = partition
                result = _append_traced(
                    context, partition, records, now_ms, acks, verification=verification
                )
                _fill(partition_response, partition, result, acks, pending)
            except (PartitionNotYetOpen, PartitionMissing, NeedsWorker, NeedsCoordinator):
                if data.records is None:
                    failed = InvalidRecord(NO_BATCH)
                    set_error(partition_response, failed)
                    _count_rejected(context, topic, data)
                    continue
                # The frame's buffer is reused during the wait: copy the records.
                data.records = memoryview(bytearray(records_of(data)))
                deferred.append(Deferred(partition_response, topic, data))
            except LograftError as error:
                failed = error
                set_error(partition_response, error, partition=appending, budget=budget)
                _count_rejected(context, topic, data)
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses
            )
        )
    return _reply(context, request, ProduceResponse(responses=topics), deferred, pending, failed)


def _reply(
    context: Context,
    request: ProduceRequest,
    response: ProduceResponse,
    deferred: list[Deferred],
    pending: list[Pending],
    failed: LograftError | None,
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    if deferred or pending:
        # Once everything is appended, the order of requests is fixed: the next may be handled.
        context.allows_pipelining = not deferred
        return _finish(context, request, response, deferred, pending)
    if request.acks == ACKS_NONE:
        if failed is not None:
            raise CloseConnection(f"Produce with acks=0 failed: {failed}")
        return None
    if failed is not None:
        add_leaders(context.broker, context.listener, context.api_version, response)
    return response


def _may_write_transaction(context: Context, request: ProduceRequest) -> bool:
    """As in Kafka, a transactional id matters only if there are transactional batches."""
    has_transaction = any(
        data.records is not None
        and len(records := records_of(data)) >= HEADER_SIZE
        and records[ATTRIBUTES_AT] & TRANSACTIONAL_FLAG
        for topic in request.topic_data
        for data in topic.partition_data
    )
    if not has_transaction:
        return True
    transactional_id = request.transactional_id
    return transactional_id is not None and is_allowed(
        context, TRANSACTIONAL_ID_WRITE, transactional_id
    )


def is_permitted(context: Context, request: ProduceRequest) -> bool:
    """Returns whether the principal may repeat the request with any records. False for topics that
    do not exist."""
    if context.authorizer is None:
        return True
    transactional_id = request.transactional_id
    names = [_name_of(context, topic) for topic in request.topic_data]
    return (
        all(names)
        and not find_denied(context, TOPIC_WRITE, names, is_filter=True)
        and (
            transactional_id is None
            or is_allowed(context, TRANSACTIONAL_ID_WRITE, transactional_id, is_probe=True)
        )
    )


def _reject_transaction(request: ProduceRequest) -> ProduceResponse:
    error = permission_error(TRANSACTIONAL_ID_WRITE, request.transactional_id or "")
    if request.acks == ACKS_NONE:
        raise CloseConnection(f"Produce with acks=0 failed: {error}")
    return _reject_all(request, error.code, error.message)


def _count_rejected(context: Context, topic: TopicProduceData, data: PartitionProduceData) -> None:
    traffic = context.broker.partitions.traffic.find(_name_of(context, topic))
    traffic.batches_rejected += 1
    if data.records is not None:
        traffic.bytes_rejected += len(records_of(data))


def _topic_names(context: Context, request: ProduceRequest) -> Iterator[str]:
    return (name for topic in request.topic_data if (name := _name_of(context, topic)))


def _name_of(context: Context, topic: TopicProduceData) -> str:
    """Returns an empty name for an unknown id."""
    if context.api_version < TOPIC_IDS_SINCE:
        return topic.name
    state = context.broker.image.topics.get(topic.topic_id)
    return "" if state is None else state.name


def _reject_all(request: ProduceRequest, code: ErrorCode, message: str) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=code,
                        base_offset=NO_OFFSET,
                        error_message=message,
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _partition_of(broker: Broker, topic: TopicProduceData, index: int, version: int) -> Partition:
    if version >= TOPIC_IDS_SINCE:
        partition = broker.partitions.get_by_id(topic.topic_id, index)
    else:
        partition = broker.partitions.get(topic.name, index)
    if partition is None:
        if version >= TOPIC_IDS_SINCE:
            raise broker.missing_id_error(topic.topic_id, index, to_produce=True)
        raise broker.missing_error(topic.name, index, to_produce=True)
    return partition


def records_of(data: PartitionProduceData) -> memoryview:
    records = data.records
    assert not isinstance(records, tuple), "a request's records are in memory"
    if records is None:
        raise InvalidRecord(NO_BATCH)
    return records if isinstance(records, memoryview) else memoryview(records)


def _check_records(
    context: Context, partition: Partition, data: PartitionProduceData
) -> memoryview:
    """Returns the records after checks that depend on the request, not only on the batch."""
    records = records_of(data)
    if len(records) < HEADER_SIZE:
        raise InvalidRecord(NO_BATCH)
    if records[MAGIC_AT] != MAGIC:
        raise InvalidRecord(
            f"Record batches need magic {MAGIC}, but this one has {records[MAGIC_AT]}."
        )
    attributes = records[ATTRIBUTES_AT]
    if attributes & CODEC_MASK == Codec.ZSTD and context.api_version < ZSTD_SINCE:
        raise UnsupportedCompression(f"zstd needs Produce version {ZSTD_SINCE} or later.")
    if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise InvalidTopic(f"Clients cannot write to the internal topic {partition.topic}.")
    return records


def append(
    partition: Partition,
    records: memoryview,
    now_ms: int,
    acks: int,
    *,
    checked_by: AppendRules | None = None,
    verification: Verification | None = None,
) -> AppendResult:
    """Appends the records, or raises an error and appends nothing."""
    if acks == ACKS_ALL:
        partition.check_append(acks_all=True)
    return partition.append(
        records, now_ms=now_ms, checked_by=checked_by, verification=verification
    )


def _append_traced(
    context: Context,
    partition: Partition,
    records: memoryview,
    now_ms: int,
    acks: int,
    *,
    checked_by: AppendRules | None = None,
    verification: Verification | None = None,
) -> AppendResult:
    """The same, and reports the append if records are traced."""
    traces = context.broker.traces
    if traces is None:
        return append(
            partition, records, now_ms, acks, checked_by=checked_by, verification=verification
        )
    started_ns = traces.now_ns()
    result = append(
        partition, records, now_ms, acks, checked_by=checked_by, verification=verification
    )
    traces.on_appended(
        partition, records, result, client_id=context.client_id, started_ns=started_ns
    )
    return result


def is_acknowledged(partition: Partition, end: Offset, acks: int) -> bool:
    """Returns whether the response can be sent; raises if the append failed afterwards."""
    return acks == ACKS_NONE or partition.is_acknowledged(end, acks_all=acks == ACKS_ALL)


def _fill(
    partition_response: PartitionProduceResponse,
    partition: Partition,
    result: AppendResult,
    acks: int,
    pending: list[Pending],
) -> None:
    partition_response.base_offset = result.base_offset
    partition_response.log_append_time_ms = result.log_append_time_ms
    partition_response.log_start_offset = result.log_start_offset
    if not is_acknowledged(partition, result.end_offset, acks):
        pending.append(
            Pending(partition_response, partition, result.end_offset, partition.leader_epoch)
        )


async def _finish(
    context: Context,
    request: ProduceRequest,
    response: ProduceResponse,
    deferred: list[Deferred],
    pending: list[Pending],
) -> ProduceResponse | None:
    clock = context.broker.clock
    deadline_ms = clock.mono_ms() + max(0, request.timeout_ms)
    ready: list[tuple[Deferred, Partition, memoryview]] = []
    for waiting in deferred:
        response_data, topic, data = waiting
        try:
            partition = await _wait_partition(context, topic, data.index, deadline_ms)
            ready.append((waiting, partition, _check_records(context, partition, data)))
        except LograftError as error:
            set_error(response_data, error)
            _count_rejected(context, topic, data)
    budget = RecordErrorBudget()
    verifications = await verify(
        context, request, [(partition, data) for _, partition, data in ready]
    )
    for (waiting, partition, records), verification in zip(ready, verifications, strict=True):
        partition_response, topic, data = waiting
        if isinstance(verification, LograftError):
            set_error(partition_response, verification)
            _count_rejected(context, topic, data)
            continue
        try:
            result = await _append_checked(context, partition, records, request.acks, verification)
            _fill(partition_response, partition, result, request.acks, pending)
        except LograftError as error:
            set_error(partition_response, error, partition=partition, budget=budget)
            _count_rejected(context, topic, data)
    for partition_response, partition, end, leader_epoch in pending:
        wait = partition.wait_committed if request.acks == ACKS_ALL else partition.wait_flushed
        timeout_ms = max(0, deadline_ms - clock.mono_ms())
        try:
            await wait(end, timeout_ms=timeout_ms, leader_epoch=leader_epoch)
        except LograftError as error:
            set_error(partition_response, error)
            context.broker.expirations.produces += isinstance(error, WaitTimedOut)
    if request.acks == ACKS_NONE:
        for partition_response, _, _ in deferred:
            if partition_response.error_code:
                raise CloseConnection(
                    f"Produce with acks=0 failed: {partition_response.error_message}"
                )
        return None
    add_leaders(context.broker, context.listener, context.api_version, response)
    return response


async def _append_checked(
    context: Context,
    partition: Partition,
    records: memoryview,
    acks: int,
    verification: Verification | None,
) -> AppendResult:
    """Appends the records, after a worker has validated them if that takes a long time; validates
    them again if the topic's settings change before. Later requests wait, so the order is kept."""
    broker = context.broker
    checked_by: AppendRules | None = None
    while True:
        now_ms = broker.clock.wall_ms()
        try:
            return _append_traced(
                context,
                partition,
                records,
                now_ms,
                acks,
                checked_by=checked_by,
                verification=verification,
            )
        except NeedsWorker:
            check = partition.leader_log().validation_job(records, now_ms)
            records, checked_by = await broker.runtime.workers.run(check)


async def _wait_partition(
    context: Context, topic: TopicProduceData, index: int, deadline_ms: int
) -> Partition:
    """Returns the partition once its log is open; creates partitions on demand if allowed."""
    broker = context.broker
    version = context.api_version
    try:
        partition = _partition_of(broker, topic, index, version)
    except PartitionMissing as missing:
        await grow_on_demand(broker.metadata, broker.link, missing.topic, index)
        partition = _partition_of(broker, topic, index, version)
    await partition.wait_open(timeout_ms=max(0, deadline_ms - broker.clock.mono_ms()))
    return partition


def add_leaders(broker: Broker, listener: str, version: int, response: ProduceResponse) -> None:
    """Adds the current leaders for a client that contacted the wrong broker, saving it a Metadata
    request."""
    if version < LEADER_HINTS_SINCE:
        return
    leaders: dict[int, None] = {}
    for topic in response.responses:
        for partition_response in topic.partition_responses:
            if partition_response.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            state = broker.partition_state(topic.name, topic.topic_id, partition_response.index)
            if state is not None:
                leaders[state.leader] = None
                partition_response.current_leader = LeaderIdAndEpoch(
                    leader_id=state.leader, leader_epoch=state.leader_epoch
                )
    for node_id in leaders:
        endpoint = broker.endpoint_of(node_id, listener)
        if endpoint is not None:
            response.node_endpoints.append(
                NodeEndpoint(
                    node_id=node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
                )
            )
