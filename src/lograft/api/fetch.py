"""Fetch, versions 4-18. Answers with slices of log files, no record is looked at.

A fetch that finds fewer than min_bytes waits up to max_wait_ms and is woken by the append that
completes it. max_bytes bounds the answer, but its first batch is sent whole however large it is, so
that a consumer never gets stuck. read_committed stops at the last stable offset and names the
aborted transactions. v7: sessions (KIP-227). v9, v12: leader epochs, divergence. v11: consumers may
read from followers, and a leader sends them to the nearest replica where the broker is told to
(KIP-392). v13: topic ids. v16: new leaders in the answer (KIP-951). Replicas: `follower_fetch`.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, Final

from lograft.api import follower_fetch
from lograft.api.authorization import NO_NAMES, denied, find_denied, is_allowed
from lograft.api.context import Api, Context, DelayedResponse
from lograft.api.errors import code_of
from lograft.api.quorum import fetch_metadata
from lograft.api.types import each_item, whole_request
from lograft.broker.broker import Broker
from lograft.broker.errors import NotLeader, PartitionOpening
from lograft.broker.partitions.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    NO_SESSION,
    TOPIC_IDS_SINCE,
    FetchSession,
    Wanted,
    wanted_of,
)
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.waits import wait_any
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
    """The broker or controller that fetches; below 0 for clients."""
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
LEADER_HINTS_SINCE: Final = 16
DIVERGENCE_SINCE: Final = 12
FOLLOWERS_SINCE: Final = 11
NO_RECORDS: Final = b""
#: Told before anything is read.
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
        # The next request of that replica may be the one that ends the wait of this one.
        context.allows_pipelining = True
        if not is_allowed(context, CLUSTER_ACTION):
            raise denied(CLUSTER_ACTION, CLUSTER_NAME)
        return fetch_metadata(context, request)
    if is_from_replica(request):
        return follower_fetch.handle(context, request, replica_of(request))
    broker: Broker = context.broker
    version = context.api_version
    session: FetchSession | None = None
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        if request.session_id != NO_SESSION:
            broker.fetch_sessions.close(request.session_id)
        wanted = wanted_of(request)
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
        wanted = wanted_of(request) if session is None else session.wanted()
        incremental = session is not None
    fetch = Fetch(context, request, wanted)
    fetch.read()
    if fetch.may_answer:
        return _answer(context, session, incremental, fetch.answers)
    return _wait(context, session, incremental, fetch)


def error_response(request: FetchRequest, code: ErrorCode, message: str) -> FetchResponse:
    """A replica that may not fetch gets TOPIC_AUTHORIZATION_FAILED for each partition, as in Kafka:
    before version 7 there is no error code for the whole response."""
    response = FetchResponse(error_code=code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _refused(
                        Wanted(topic.topic, topic.topic_id, asked),
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


class Fetch:
    """One reading of all wanted partitions, and what is needed to do it again."""

    __slots__ = (
        "_broker",
        "_by_id",
        "_bytes_left",
        "_bytes_max",
        "_client_rack",
        "_committed_only",
        "_denied_topics",
        "_from_leader_only",
        "_marks",
        "_may_diverge",
        "_urgent",
        "answers",
        "bytes_read",
        "may_answer",
        "opening",
        "partitions",
        "request",
        "wanted",
    )

    def __init__(self, context: Context, request: FetchRequest, wanted: list[Wanted]) -> None:
        self._broker: Broker = context.broker
        self.request = request
        self.wanted = wanted
        self._by_id = context.api_version >= TOPIC_IDS_SINCE
        # A session may go on in an older version than it was opened in.
        self._may_diverge = context.api_version >= DIVERGENCE_SINCE
        self._bytes_max = min(request.max_bytes, self._broker.config.fetch_max_bytes)
        self._denied_topics = NO_NAMES
        if context.authorizer is not None:
            names = filter(None, map(self._name_of, wanted))
            self._denied_topics = find_denied(context, TOPIC_READ, names)
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._from_leader_only = context.api_version < FOLLOWERS_SINCE
        #: Empty: whoever is asked answers.
        self._client_rack = request.rack_id if self._broker.selects_by_rack else ""
        self.answers: list[tuple[Wanted, PartitionData]] = []
        self.partitions: list[Partition] = []
        #: Their roles and high watermarks at the time of the reading.
        self._marks: list[tuple[Watermarked, Offset]] = []
        self.opening: list[Partition] = []
        self.bytes_read = 0
        self.may_answer = False

    def read(self) -> None:
        request = self.request
        answers: list[tuple[Wanted, PartitionData]] = []
        self.answers = answers
        self.partitions = []
        self._marks = []
        self.opening = []
        self.bytes_read = 0
        self._bytes_left = self._bytes_max
        self._urgent = request.max_wait_ms <= 0 or not self.wanted
        for wanted in self.wanted:
            try:
                answer = self._read_one(wanted)
            except PartitionOpening:
                answer = _refused(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            except LograftError as error:
                answer = _refused(wanted, code_of(error))
                self._urgent = True
            answers.append((wanted, answer))
        enough = self.bytes_read >= request.min_bytes and not self.opening
        self.may_answer = self._urgent or enough

    def is_stale(self) -> bool:
        """Whether a reading of now would differ. A wait begins a turn of the loop after the first
        reading, and what comes between would not wake it."""
        return any(
            partition.rule is not rule or rule.high_watermark != mark or partition.offline
            for partition, (rule, mark) in zip(self.partitions, self._marks, strict=True)
        ) or any(not partition.is_opening for partition in self.opening)

    def _read_one(self, wanted: Wanted) -> PartitionData:
        topic, topic_id, asked = wanted
        table = self._broker.partitions
        index = asked.partition
        if self._denied_topics and (name := self._name_of(wanted)) in self._denied_topics:
            raise denied(TOPIC_READ, name)
        if self._by_id:
            partition = table.get_by_id(topic_id, index)
            if partition is None:
                raise self._broker.why_missing_id(topic_id, index)
        else:
            partition = table.get(topic, index)
            if partition is None:
                raise self._broker.why_missing(topic, index)
        partition.check_epoch(asked.current_leader_epoch)
        try:
            log = partition.leader_log() if self._from_leader_only else partition.serving_log()
        except PartitionOpening:
            self.opening.append(partition)
            raise
        rule = partition.rule
        high_watermark = rule.high_watermark
        self.partitions.append(partition)
        self._marks.append((rule, high_watermark))
        stable = partition.last_stable_offset
        answer = PartitionData(
            partition_index=index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=NO_RECORDS,
        )
        if asked.last_fetched_epoch != NO_EPOCH and self._may_diverge:
            answer.diverging_epoch = _divergence(
                partition, asked.last_fetched_epoch, asked.fetch_offset
            )
            if answer.diverging_epoch is not None:
                self._urgent = True
                return answer
        offset = Offset(asked.fetch_offset)
        if offset > log.end_offset and not self._surely_leads(partition):
            raise NotLeader(f"{offset} may be there where {partition.topic_partition} is led")
        if self._client_rack and partition.leader is not None:
            nearest = self._broker.nearest_replica(partition, offset, self._client_rack)
            if nearest is not None:
                answer.preferred_read_replica = nearest
                self._urgent = True
                return answer
        bound = stable if self._committed_only else high_watermark
        part = None
        if self._bytes_left > 0 or not self.bytes_read:
            part = partition.read(
                offset,
                bytes_max=min(asked.partition_max_bytes, self._bytes_left),
                bound=bound,
                at_least_one=not self.bytes_read,
            )
        elif not log.log_start_offset <= offset <= log.end_offset:
            # The answer is full, but a position that does not exist is told at once.
            raise OffsetOutOfRange(offset, log_start=log.log_start_offset, end=log.end_offset)
        if part is not None:
            answer.records = part
            self.bytes_read += part.size
            self._bytes_left = max(0, self._bytes_left - part.size)
            if offset < log.active.base_offset:
                # A slice ends with its segment: more bytes would not make it longer.
                self._urgent = True
        if self._committed_only:
            answer.aborted_transactions = (
                [] if part is None else _aborted(partition, part, offset, bound)
            )
        return answer

    def _name_of(self, wanted: Wanted) -> str:
        """Empty for an id that no topic has."""
        if not self._by_id:
            return wanted.topic
        known = self._broker.image.topics.get(wanted.topic_id)
        return "" if known is None else known.name

    def _surely_leads(self, partition: Partition) -> bool:
        """Followers are behind, and a leader that the controller has not heard for a session does
        not know how far its successor has come: who reads there shall not be told that a position
        does not exist."""
        if partition.leader is None:
            return False
        return len(partition.assignment.replicas) == 1 or self._broker.coordinators.has_lease()


async def _wait(
    context: Context, session: FetchSession | None, incremental: bool, fetch: Fetch
) -> FetchResponse:
    clock = context.broker.clock
    deadline_ms = clock.mono_ms() + fetch.request.max_wait_ms
    if fetch.is_stale():
        fetch.read()
    while not fetch.may_answer and (wait_ms := deadline_ms - clock.mono_ms()) > 0:
        if fetch.opening:
            await fetch.opening[0].wait_open(timeout_ms=wait_ms)
        else:
            missing = fetch.request.min_bytes - fetch.bytes_read
            await wait_any(fetch.partitions, bytes_missing=missing, wait_ms=wait_ms)
        fetch.read()
    return _answer(context, session, incremental, fetch.answers)


def _aborted(
    partition: Partition, part: FileSlice, offset: Offset, bound: Offset
) -> list[AbortedTransaction]:
    try:
        found = partition.serving_log().find_aborted_in_slice(part, offset, bound)
    except DiskFailed as error:
        partition.on_disk_failed(error)
        raise
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in found
    ]


def _divergence(partition: Partition, epoch: int, fetch_offset: int) -> EpochEndOffset | None:
    """Where the reader's log parts from ours, if it does: it must go back to there."""
    log = partition.serving_log()
    end_epoch, end_offset = log.epoch_end(Epoch(epoch))
    if end_epoch == NO_EPOCH or end_offset == NO_OFFSET:
        raise OffsetOutOfRange(fetch_offset, log_start=log.log_start_offset, end=log.end_offset)
    if end_epoch < epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=end_epoch, end_offset=end_offset)
    return None


def _refused(wanted: Wanted, code: int) -> PartitionData:
    """Kafka names no transactions (null) where a read failed, none at all (empty) where there is
    nothing to read."""
    return PartitionData(
        partition_index=wanted.asked.partition,
        error_code=code,
        high_watermark=NO_OFFSET,
        aborted_transactions=[] if code in UNKNOWN else None,
        records=NO_RECORDS,
    )


def _answer(
    context: Context,
    session: FetchSession | None,
    incremental: bool,
    answers: Iterable[tuple[Wanted, PartitionData]],
) -> FetchResponse:
    response = FetchResponse()
    if session is not None:
        response.session_id = session.session_id
        news = list(session.keep_news(answers))
        if incremental:
            answers = news
    topic: FetchableTopicResponse | None = None
    for wanted, answer in answers:
        if topic is None or topic.topic != wanted.topic or topic.topic_id != wanted.topic_id:
            topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
            response.responses.append(topic)
        topic.partitions.append(answer)
        if answer.error_code and context.api_version >= LEADER_HINTS_SINCE:
            _hint_leader(context, response, wanted, answer)
    return response


def _hint_leader(
    context: Context, response: FetchResponse, wanted: Wanted, answer: PartitionData
) -> None:
    """Tells a client that came to the wrong broker, or with an old epoch, where to go."""
    if answer.error_code not in HINTED_ERRORS:
        return
    broker: Broker = context.broker
    state = broker.partition_state(wanted.topic, wanted.topic_id, wanted.asked.partition)
    if state is None:
        return
    answer.current_leader = LeaderIdAndEpoch(
        leader_id=state.leader, leader_epoch=state.leader_epoch
    )
    if any(node.node_id == state.leader for node in response.node_endpoints):
        return
    end = broker.endpoint_of(state.leader, context.listener)
    if end is not None:
        response.node_endpoints.append(
            NodeEndpoint(node_id=state.leader, host=end.host, port=end.port, rack=end.rack)
        )
