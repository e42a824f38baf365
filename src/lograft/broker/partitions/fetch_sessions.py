"""Incremental fetch sessions (KIP-227): what a client asked for is kept here, so that its next
fetch names only changes and the answer holds only news.

A session is found by id and must be continued with exactly the next epoch; anything else makes
the client start again with a full fetch, which is always safe.
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
#: A full fetch without a session; closes the one it names.
EPOCH_FINAL: Final = -1
EPOCH_MAX: Final = 0x7FFF_FFFF
#: From this version on topics go by id.
TOPIC_IDS_SINCE: Final = 13
#: Of all sessions together: a request of some megabytes must not keep a hundred for itself. Who
#: finds no room fetches without a session.
PARTITIONS_MAX: Final = 200_000
#: A session younger than this is only evicted for a bigger one.
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


class Wanted(NamedTuple):
    """One partition to be read. The name is empty where the request goes by ids."""

    topic: str
    topic_id: UUID
    asked: FetchPartition


class Cached:
    """One partition of a session: what is asked for, and what the client was last told."""

    __slots__ = ("log_start_told", "wanted", "watermark_told")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.watermark_told = -1
        self.log_start_told = -1

    def is_news(self, answer: PartitionData) -> bool:
        """Whether the answer holds anything the client does not know; remembers what it says."""
        news = (
            bool(answer.records)
            or answer.high_watermark != self.watermark_told
            or answer.log_start_offset != self.log_start_told
            or answer.preferred_read_replica >= 0
            or answer.error_code != 0
            or answer.diverging_epoch is not None
        )
        self.watermark_told = answer.high_watermark
        self.log_start_told = answer.log_start_offset
        if answer.error_code:
            # The end of an error is news too, whatever the watermark says then.
            self.watermark_told = -1
        return news


class FetchSession:
    __slots__ = ("created_ms", "epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        #: What the next request must carry.
        self.epoch = 1
        #: In the order of serving: a partition that gave data goes to the end.
        self.partitions: dict[tuple[TopicKey, int], Cached] = {}

    def update(self, request: FetchRequest) -> None:
        by_id = self.uses_topic_ids
        partitions = self.partitions
        for forgotten in request.forgotten_topics_data:
            key: TopicKey = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((key, index), None)
        for wanted in wanted_of(request):
            key = wanted.topic_id if by_id else wanted.topic
            cached = partitions.get((key, wanted.asked.partition))
            if cached is None:
                partitions[key, wanted.asked.partition] = Cached(wanted)
            else:
                cached.wanted = wanted

    def wanted(self) -> list[Wanted]:
        return [cached.wanted for cached in self.partitions.values()]

    def keep_news(
        self, answers: Iterable[tuple[Wanted, PartitionData]]
    ) -> Iterator[tuple[Wanted, PartitionData]]:
        """The answers worth sending. Partitions that gave data move to the end of the line, so
        that a byte limit does not starve the others."""
        by_id = self.uses_topic_ids
        for wanted, answer in answers:
            key = (wanted.topic_id if by_id else wanted.topic, wanted.asked.partition)
            cached = self.partitions.get(key)
            if cached is None or cached.is_news(answer):
                if cached is not None and answer.records:
                    self.partitions[key] = self.partitions.pop(key)
                yield wanted, answer


def wanted_of(request: FetchRequest) -> list[Wanted]:
    return [
        Wanted(topic.topic, topic.topic_id, partition)
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
        """The session that an incremental request continues, already updated by it; None when the
        request was its last."""
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
        """A new session for a full fetch; None when the cache is full of better ones."""
        size = sum(len(topic.partitions) for topic in request.topics)
        if not size or self._partitions + size > PARTITIONS_MAX:
            return None
        if not self._make_room(size, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.below(EPOCH_MAX) + 1
        session = FetchSession(session_id, uses_topic_ids=version >= TOPIC_IDS_SINCE, now_ms=now_ms)
        session.update(request)
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
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
