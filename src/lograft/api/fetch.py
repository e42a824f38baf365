"""Fetch, versions 4-18. Returns slices of log files; no record is parsed.

A fetch that finds fewer than min_bytes waits up to max_wait_ms; the append that adds enough bytes
completes it. max_bytes limits the response, but its first batch is returned whole whatever its
size, so that a consumer always makes progress. read_committed ends at the last stable offset and
lists the aborted transactions. v7: sessions (KIP-227). v9, v12: leader epochs, divergence. v11:
consumers may fetch from followers, and a leader redirects them to the nearest replica if the broker
has a replica selector (KIP-392). v13: topic ids. v16: new leaders in the response (KIP-951).
Replicas: `follower_fetch`.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, Final
from uuid import UUID

from lograft.api import follower_fetch
from lograft.api.authorization import NO_NAMES, find_denied, is_allowed, permission_error
from lograft.api.context import Api, Context, DelayedResponse
from lograft.api.errors import code_of
from lograft.api.quorum import fetch_metadata
from lograft.api.types import each_item, whole_request
from lograft.broker.broker import Broker
from lograft.broker.errors import NotLeader, PartitionNotYetOpen
from lograft.broker.partitions.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    NO_SESSION,
    TOPIC_IDS_SINCE,
    FetchSession,
    RequestedPartition,
    requested_partitions,
)
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.topic_traffic import TopicTraffic
from lograft.broker.partitions.waits import wait_any
from lograft.broker.record_traces import RecordTraces
from lograft.model.errors import DiskFailed, ErrorCode, LograftError
from lograft.model.seams import FileSlice
from lograft.model.types import NO_EPOCH, NO_OFFSET, Epoch, Offset
from lograft.replication.roles import Watermarked
from lograft.security.authorization import CLUSTER_ACTION, CLUSTER_NAME, TOPIC_READ
from lograft.storage.errors import OffsetOutOfRange
from lograft.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)


def replica_of(request: FetchRequest) -> int:
    """Returns the id of the broker or controller that fetches; below 0 for clients."""
    state = request.replica_state
    return request.replica_id if state is None else state.replica_id


def is_from_replica(request: FetchRequest) -> bool:
    return replica_of(request) >= 0


API: Final = Api(
    key=1,
    versions=range(4, 19),
    needs=whole_request(CLUSTER_ACTION, when=is_from_replica) + each_item(TOPIC_READ),
)

READ_COMMITTED: Final = 1
#: Before the topics are authorized.
NO_VERSION: Final = -1
LEADER_HINTS_SINCE: Final = 16
DIVERGENCE_SINCE: Final = 12
FOLLOWERS_SINCE: Final = 11
NO_RECORDS: Final = b""
#: Errors that are detected before anything is read.
UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
HINTED_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    context: Context, request: FetchRequest
) -> FetchResponse | DelayedResponse | Coroutine[Any, Any, FetchResponse]:
    if context.role == "controller":
        # The replica's next request may end the wait of this one.
        context.allows_pipelining = True
        if not is_allowed(context, CLUSTER_ACTION):
            raise permission_error(CLUSTER_ACTION, CLUSTER_NAME)
        return fetch_metadata(context, request)
    replica_id = replica_of(request)
    if replica_id >= 0:
        return follower_fetch.handle(context, request, replica_id)
    broker: Broker = context.broker
    version = context.api_version
    session: FetchSession | None = None
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        if request.session_id != NO_SESSION:
            broker.fetch_sessions.close(request.session_id)
        requested = requested_partitions(request)
        if request.session_epoch == EPOCH_INITIAL:
            session = broker.fetch_sessions.open(
                request, version=version, now_ms=broker.clock.mono_ms()
            )
        incremental = False
    else:
        try:
            session = broker.fetch_sessions.resume(
                request, version=version, now_ms=broker.clock.mono_ms()
            )
        except LograftError as error:
            return FetchResponse(error_code=code_of(error), session_id=NO_SESSION)
        requested = requested_partitions(request) if session is None else session.list_requested()
        incremental = session is not None
    fetch = Fetch(context, request, requested)
    fetch.read()
    if fetch.can_respond:
        return _respond(context, session, incremental, fetch)
    return _wait(context, session, incremental, fetch)


def is_permitted(context: Context, request: FetchRequest) -> bool:
    """Returns whether a consumer may repeat the request. False for topics that do not exist."""
    if context.authorizer is None:
        return True
    names = [_name_of(context, topic.topic, topic.topic_id) for topic in request.topics]
    return all(names) and not find_denied(context, TOPIC_READ, names, is_filter=True)


def error_response(request: FetchRequest, code: ErrorCode, message: str) -> FetchResponse:
    """A replica that may not fetch gets TOPIC_AUTHORIZATION_FAILED for each partition, as in Kafka:
    before version 7 the response has no top-level error code."""
    response = FetchResponse(error_code=code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _error_data(
                        RequestedPartition(topic.topic, topic.topic_id, partition),
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def _name_of(context: Context, name: str, topic_id: UUID) -> str:
    """Returns an empty name for an unknown id."""
    if context.api_version < TOPIC_IDS_SINCE:
        return name
    state = context.broker.image.topics.get(topic_id)
    return "" if state is None else state.name


class Fetch:
    """Reads all requested partitions; the read is repeated until the response can be sent."""

    __slots__ = (
        "_acl_version",
        "_broker",
        "_by_id",
        "_bytes_left",
        "_bytes_max",
        "_bytes_min",
        "_client_rack",
        "_committed_only",
        "_context",
        "_denied_topics",
        "_failed",
        "_from_leader_only",
        "_marks",
        "_may_diverge",
        "_sent",
        "_started_ns",
        "_urgent",
        "bytes_read",
        "can_respond",
        "opening",
        "partitions",
        "request",
        "requested",
        "results",
    )

    def __init__(
        self, context: Context, request: FetchRequest, requested: list[RequestedPartition]
    ) -> None:
        self._broker: Broker = context.broker
        self.request = request
        self.requested = requested
        self._by_id = context.api_version >= TOPIC_IDS_SINCE
        # A session may continue in an older version than the one in which it was opened.
        self._may_diverge = context.api_version >= DIVERGENCE_SINCE
        self._bytes_max = min(request.max_bytes, self._broker.metadata.config.fetch_max_bytes)
        if context.usage is not None:
            within_quota = context.usage.fetch_bytes_max()
            if within_quota is not None:
                self._bytes_max = int(min(self._bytes_max, within_quota))
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._context = context
        self._acl_version = NO_VERSION
        self._denied_topics = NO_NAMES
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._from_leader_only = context.api_version < FOLLOWERS_SINCE
        #: Empty: the broker that gets the request serves it.
        self._client_rack = request.rack_id if self._broker.selects_by_rack else ""
        self.results: list[tuple[RequestedPartition, PartitionData]] = []
        self.partitions: list[Partition] = []
        #: Their roles and high watermarks when they were read.
        self._marks: list[tuple[Watermarked, Offset]] = []
        self.opening: list[Partition] = []
        #: Sizes of the records that were read, and partitions that were not read because of an
        #: error, for the metrics.
        self._sent: list[tuple[TopicTraffic, int]] = []
        self._failed: list[RequestedPartition] = []
        self.bytes_read = 0
        self.can_respond = False
        #: Start of the last read, if records are traced.
        self._started_ns = 0

    def read(self) -> None:
        request = self.request
        authorizer = self._context.authorizer
        if authorizer is not None and authorizer.version != self._acl_version:
            # The first read, or the ACLs have changed since the previous one.
            self._acl_version = authorizer.version
            names = filter(None, map(self._name_of, self.requested))
            self._denied_topics = find_denied(self._context, TOPIC_READ, names)
        if self._broker.traces is not None:
            self._started_ns = self._broker.traces.now_ns()
        results: list[tuple[RequestedPartition, PartitionData]] = []
        self.results = results
        self.partitions = []
        self._marks = []
        self.opening = []
        self._sent = []
        self._failed = []
        self.bytes_read = 0
        self._bytes_left = self._bytes_max
        self._urgent = request.max_wait_ms <= 0 or not self.requested
        for requested in self.requested:
            try:
                data = self._read_one(requested)
            except PartitionNotYetOpen:
                data = _error_data(requested, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            except LograftError as error:
                data = _error_data(requested, code_of(error))
                self._urgent = True
                self._failed.append(requested)
            results.append((requested, data))
        has_enough = self.bytes_read >= self._bytes_min and not self.opening
        self.can_respond = self._urgent or has_enough

    @property
    def bytes_missing(self) -> int:
        return self._bytes_min - self.bytes_read

    def count_traffic(self) -> None:
        """Called when the last read becomes the response."""
        for traffic, size in self._sent:
            traffic.bytes_out += size
        for requested in self._failed:
            self._broker.partitions.traffic.find(self._name_of(requested)).fetches_failed += 1

    def report_delivery(self, traces: RecordTraces) -> None:
        """Called when the last read becomes the response, if records are traced."""
        for requested, data in self.results:
            if isinstance(data.records, FileSlice):
                traces.on_delivered(
                    (self._name_of(requested), requested.fetch.partition),
                    data.records,
                    offset=requested.fetch.fetch_offset,
                    client_id=self._context.client_id,
                    started_ns=self._started_ns,
                )

    def is_stale(self) -> bool:
        """Returns whether a new read would differ. The wait starts one iteration of the event
        loop after the first read, and does not notice changes in between."""
        return any(
            partition.rule is not rule or rule.high_watermark != mark or partition.offline
            for partition, (rule, mark) in zip(self.partitions, self._marks, strict=True)
        ) or any(not partition.is_opening for partition in self.opening)

    def _read_one(self, requested: RequestedPartition) -> PartitionData:
        topic, topic_id, fetch = requested
        table = self._broker.partitions
        index = fetch.partition
        if self._denied_topics and (name := self._name_of(requested)) in self._denied_topics:
            raise permission_error(TOPIC_READ, name)
        if self._by_id:
            partition = table.get_by_id(topic_id, index)
            if partition is None:
                raise self._broker.missing_id_error(topic_id, index)
        else:
            partition = table.get(topic, index)
            if partition is None:
                raise self._broker.missing_error(topic, index)
        partition.check_epoch(fetch.current_leader_epoch)
        try:
            log = partition.leader_log() if self._from_leader_only else partition.serving_log()
        except PartitionNotYetOpen:
            self.opening.append(partition)
            raise
        rule = partition.rule
        high_watermark = rule.high_watermark
        self.partitions.append(partition)
        self._marks.append((rule, high_watermark))
        stable = partition.last_stable_offset
        data = PartitionData(
            partition_index=index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=NO_RECORDS,
        )
        if fetch.last_fetched_epoch != NO_EPOCH and self._may_diverge:
            data.diverging_epoch = _find_divergence(
                partition, fetch.last_fetched_epoch, fetch.fetch_offset
            )
            if data.diverging_epoch is not None:
                self._urgent = True
                return data
        offset = Offset(fetch.fetch_offset)
        if offset > log.end_offset and not self._is_end_authoritative(partition):
            raise NotLeader(
                f"This broker may not have all records of {partition.topic_partition} yet."
            )
        if self._client_rack and partition.leader is not None:
            nearest = self._broker.nearest_replica(partition, offset, self._client_rack)
            if nearest is not None:
                data.preferred_read_replica = nearest
                self._urgent = True
                return data
        bound = stable if self._committed_only else high_watermark
        part = None
        if self._bytes_left > 0 or not self.bytes_read:
            part = partition.read(
                offset,
                bytes_max=min(fetch.partition_max_bytes, self._bytes_left),
                bound=bound,
                at_least_one=not self.bytes_read,
            )
        elif not log.log_start_offset <= offset <= log.end_offset:
            # The response is full, but an offset out of range is reported immediately.
            raise OffsetOutOfRange(offset, log_start=log.log_start_offset, end=log.end_offset)
        if part is not None:
            data.records = part
            self.bytes_read += part.size
            self._sent.append((partition.traffic, part.size))
            self._bytes_left = max(0, self._bytes_left - part.size)
            if offset < log.active.base_offset:
                # A slice ends with its segment: waiting for more bytes would not extend it.
                self._urgent = True
        if self._committed_only:
            data.aborted_transactions = (
                [] if part is None else _find_aborted(partition, part, offset, bound)
            )
        return data

    def _name_of(self, requested: RequestedPartition) -> str:
        return _name_of(self._context, requested.topic, requested.topic_id)

    def _is_end_authoritative(self, partition: Partition) -> bool:
        """Returns whether the end of this log is certainly the end of the partition. Followers are
        behind, and so may be a leader that has had no contact with the controller for a session and
        may have a successor: their readers must not get OFFSET_OUT_OF_RANGE."""
        if partition.leader is None:
            return False
        return len(partition.assignment.replicas) == 1 or self._broker.coordinators.has_lease()


async def _wait(
    context: Context, session: FetchSession | None, incremental: bool, fetch: Fetch
) -> FetchResponse:
    broker: Broker = context.broker
    clock = broker.clock
    deadline_ms = clock.mono_ms() + fetch.request.max_wait_ms
    if fetch.is_stale():
        fetch.read()
    while not fetch.can_respond and (wait_ms := deadline_ms - clock.mono_ms()) > 0:
        if fetch.opening:
            await fetch.opening[0].wait_open(timeout_ms=wait_ms)
        else:
            await wait_any(fetch.partitions, bytes_missing=fetch.bytes_missing, wait_ms=wait_ms)
        fetch.read()
    broker.expirations.fetches += not fetch.can_respond
    return _respond(context, session, incremental, fetch)


def _respond(
    context: Context, session: FetchSession | None, incremental: bool, fetch: Fetch
) -> FetchResponse:
    usage = context.usage
    if usage is not None:
        results: Iterable[tuple[RequestedPartition, PartitionData]] = fetch.results
        if session is not None and incremental:
            results = session.preview_updates(results)
        # The session remembers what the client was sent, so it must not see this response yet.
        preview = _build_response(context, None, False, results)
        if usage.record_fetch(preview, context.api_version):
            return _throttled_response(context, session, incremental)
    fetch.count_traffic()
    if context.broker.traces is not None:
        fetch.report_delivery(context.broker.traces)
    return _build_response(context, session, incremental, fetch.results)


def _throttled_response(
    context: Context, session: FetchSession | None, incremental: bool
) -> FetchResponse:
    """Returns a response without partitions; as in Kafka, it does not create a session."""
    if session is None:
        return FetchResponse()
    if incremental:
        return FetchResponse(session_id=session.session_id)
    context.broker.fetch_sessions.close(session.session_id)
    return FetchResponse()


def _find_aborted(
    partition: Partition, part: FileSlice, offset: Offset, bound: Offset
) -> list[AbortedTransaction]:
    try:
        aborted = partition.serving_log().find_aborted_in_slice(part, offset, bound)
    except DiskFailed as error:
        partition.on_disk_failed(error)
        raise
    return [
        AbortedTransaction(
            producer_id=transaction.producer_id, first_offset=transaction.first_offset
        )
        for transaction in aborted
    ]


def _find_divergence(partition: Partition, epoch: int, fetch_offset: int) -> EpochEndOffset | None:
    """Returns the epoch and end offset to which a diverging consumer must truncate."""
    log = partition.serving_log()
    end_epoch, end_offset = log.epoch_end(Epoch(epoch))
    if end_epoch == NO_EPOCH or end_offset == NO_OFFSET:
        raise OffsetOutOfRange(fetch_offset, log_start=log.log_start_offset, end=log.end_offset)
    if end_epoch < epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=end_epoch, end_offset=end_offset)
    return None


def _error_data(requested: RequestedPartition, code: int) -> PartitionData:
    """Like Kafka, returns null for the aborted transactions if a read failed, and an empty list if
    there is nothing to read."""
    return PartitionData(
        partition_index=requested.fetch.partition,
        error_code=code,
        high_watermark=NO_OFFSET,
        aborted_transactions=[] if code in UNKNOWN else None,
        records=NO_RECORDS,
    )


def _build_response(
    context: Context,
    session: FetchSession | None,
    incremental: bool,
    results: Iterable[tuple[RequestedPartition, PartitionData]],
) -> FetchResponse:
    response = FetchResponse()
    if session is not None:
        response.session_id = session.session_id
        changes = list(session.select_updates(results))
        if incremental:
            results = changes
    topic: FetchableTopicResponse | None = None
    for requested, data in results:
        if topic is None or topic.topic != requested.topic or topic.topic_id != requested.topic_id:
            topic = FetchableTopicResponse(topic=requested.topic, topic_id=requested.topic_id)
            response.responses.append(topic)
        topic.partitions.append(data)
        if data.error_code and context.api_version >= LEADER_HINTS_SINCE:
            _add_leader(context, response, requested, data)
    return response


def _add_leader(
    context: Context, response: FetchResponse, requested: RequestedPartition, data: PartitionData
) -> None:
    """Adds the current leader for a client that contacted the wrong broker or has an old leader
    epoch, saving it a Metadata request."""
    if data.error_code not in HINTED_ERRORS:
        return
    broker: Broker = context.broker
    state = broker.partition_state(requested.topic, requested.topic_id, requested.fetch.partition)
    if state is None:
        return
    data.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
    if any(node.node_id == state.leader for node in response.node_endpoints):
        return
    endpoint = broker.endpoint_of(state.leader, context.listener)
    if endpoint is not None:
        response.node_endpoints.append(
            NodeEndpoint(
                node_id=state.leader, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
        )
