"""Incremental fetch sessions (KIP-227): the broker stores the requested partitions, so that later
requests contain only changes and responses only updates.

A session is identified by its id and must be continued with exactly the next epoch. Otherwise the
client starts again with a full fetch, which is always safe.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.broker.errors import (
    FetchSessionNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
)
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Randomness
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION: Final = 0
#: A full fetch that opens a session.
EPOCH_INITIAL: Final = 0
#: A full fetch without a session; closes the session with its id.
EPOCH_FINAL: Final = -1
EPOCH_MAX: Final = 0x7FFF_FFFF
#: Since this version requests have topic ids instead of names.
TOPIC_IDS_SINCE: Final = 13
#: Maximum number of partitions in all sessions: a request of some megabytes must not occupy a
#: hundred. Beyond it clients fetch without a session.
PARTITIONS_MAX: Final = 200_000
#: A session that was used more recently is only evicted in favour of a larger one.
EVICTION_AGE_MS_MIN: Final = 120_000

TopicKey: TypeAlias = str | UUID

SESSIONS: Final = Gauge("lograft_fetch_sessions", "Incremental fetch sessions of consumers.")
SESSION_PARTITIONS: Final = Gauge(
    "lograft_fetch_session_partitions", "Partitions of all incremental fetch sessions."
)
SESSION_EVICTIONS: Final = Counter(
    "lograft_fetch_session_evictions_total",
    "Fetch sessions that were removed to make room for others.",
)


class RequestedPartition(NamedTuple):
    """A partition in a fetch request. The name is empty if the request has topic ids."""

    topic: str
    topic_id: UUID
    fetch: FetchPartition


class CachedPartition:
    """A partition of a session: the request, and the values last sent to the client."""

    __slots__ = ("requested", "sent_high_watermark", "sent_log_start")

    def __init__(self, requested: RequestedPartition) -> None:
        self.requested = requested
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def differs(self, result: PartitionData) -> bool:
        """Returns whether the response contains an update for the client."""
        return (
            bool(result.records)
            or result.high_watermark != self.sent_high_watermark
            or result.log_start_offset != self.sent_log_start
            or result.preferred_read_replica >= 0
            or result.error_code != 0
            or result.diverging_epoch is not None
        )

    def update(self, result: PartitionData) -> bool:
        """Like `differs`; stores the values that the client is sent."""
        is_update = self.differs(result)
        self.sent_high_watermark = result.high_watermark
        self.sent_log_start = result.log_start_offset
        if result.error_code:
            # The response after the error is an update, too, whatever its high watermark.
            self.sent_high_watermark = -1
        return is_update


class FetchSession:
    __slots__ = ("created_ms", "epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        #: Session epoch expected in the next request.
        self.epoch = 1
        #: In the order of service: a partition that returned records moves to the end.
        self.partitions: dict[tuple[TopicKey, int], CachedPartition] = {}

    def update(self, request: FetchRequest) -> None:
        by_id = self.uses_topic_ids
        partitions = self.partitions
        for forgotten in request.forgotten_topics_data:
            key: TopicKey = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((key, index), None)
        for requested in requested_partitions(request):
            key = requested.topic_id if by_id else requested.topic
            cached = partitions.get((key, requested.fetch.partition))
            if cached is None:
                partitions[key, requested.fetch.partition] = CachedPartition(requested)
            else:
                cached.requested = requested

    def list_requested(self) -> list[RequestedPartition]:
        return [cached.requested for cached in self.partitions.values()]

    def preview_updates(
        self, results: Iterable[tuple[RequestedPartition, PartitionData]]
    ) -> Iterator[tuple[RequestedPartition, PartitionData]]:
        """Yields what `select_updates` would yield, and changes nothing."""
        by_id = self.uses_topic_ids
        for requested, result in results:
            key = (requested.topic_id if by_id else requested.topic, requested.fetch.partition)
            cached = self.partitions.get(key)
            if cached is None or cached.differs(result):
                yield requested, result

    def select_updates(
        self, results: Iterable[tuple[RequestedPartition, PartitionData]]
    ) -> Iterator[tuple[RequestedPartition, PartitionData]]:
        """Yields the results with updates. Partitions that returned records move to the end, so
        that a byte limit does not starve the others."""
        by_id = self.uses_topic_ids
        for requested, result in results:
            key = (requested.topic_id if by_id else requested.topic, requested.fetch.partition)
            cached = self.partitions.get(key)
            if cached is None or cached.update(result):
                if cached is not None and result.records:
                    self.partitions[key] = self.partitions.pop(key)
                yield requested, result


def requested_partitions(request: FetchRequest) -> list[RequestedPartition]:
    return [
        RequestedPartition(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


class FetchSessions:
    """At most `count_max` sessions (max.incremental.fetch.session.cache.slots)."""

    def __init__(self, randomness: Randomness, *, count_max: int) -> None:
        self._randomness = randomness
        self._count_max = count_max
        #: Least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: Partitions of all sessions.
        self._partitions = 0
        self._evictions = 0

    def resume(self, request: FetchRequest, *, version: int, now_ms: int) -> FetchSession | None:
        """Returns the session that an incremental request continues, updated by the request; None
        if the request removed its last partition."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionNotFound(f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session epoch {request.session_epoch}, expected {session.epoch}"
            )
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            raise FetchSessionTopicIdMismatch("a fetch session cannot change to or from topic ids")
        before = len(session.partitions)
        session.update(request)
        self._partitions += len(session.partitions) - before
        if not session.partitions:
            self.close(session.session_id)
            return None
        if self._partitions > PARTITIONS_MAX and len(session.partitions) > before:
            self.close(session.session_id)
            raise FetchSessionNotFound(f"no space for fetch session {request.session_id}")
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        self._sessions.move_to_end(session.session_id)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)

    def open(self, request: FetchRequest, *, version: int, now_ms: int) -> FetchSession | None:
        """Opens a session for a full fetch. Returns None if the cache is full and none can be
        evicted."""
        size = sum(len(topic.partitions) for topic in request.topics)
        if not size or self._partitions + size > PARTITIONS_MAX:
            return None
        if not self._evict(size, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.below(EPOCH_MAX) + 1
        session = FetchSession(session_id, uses_topic_ids=version >= TOPIC_IDS_SINCE, now_ms=now_ms)
        session.update(request)
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._count_max:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        victim = oldest
        if now_ms - oldest.used_ms <= EVICTION_AGE_MS_MIN:
            victim = min(self._sessions.values(), key=lambda session: len(session.partitions))
            if len(victim.partitions) >= size or now_ms - victim.created_ms <= EVICTION_AGE_MS_MIN:
                return False
        self.close(victim.session_id)
        self._evictions += 1
        return True

    def collect_samples(self) -> Iterator[Sample]:
        yield SESSIONS.sample(len(self._sessions))
        yield SESSION_PARTITIONS.sample(self._partitions)
        yield SESSION_EVICTIONS.sample(self._evictions)
