"""Bytes and records of each topic on this broker.

The topic's partitions and the handlers of Produce and Fetch count them. The number of topics in the
metrics is limited by `lograft.metrics.topics.max`: those with the most traffic have series of their
own, and all others are added up under `other`. A topic that gains or loses its series takes along
only what is counted from then on, so that no counter ever decreases.
"""

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Final

from lograft.model.metrics import OTHER, Counter, Gauge, Label, Sample
from lograft.model.seams import Clock

#: The upper limit of lograft.metrics.topics.max.
TOPICS_MAX: Final = 10_000
#: Interval at which the topics with the most traffic are determined, if there are more topics than
#: the limit.
RANKING_MS: Final = 60_000
#: A topic loses its series only to one with this many times its traffic.
HYSTERESIS: Final = 2

TOPIC: Final = Label("topic", TOPICS_MAX + 1)

BYTES_IN: Final = Counter(
    "lograft_topic_in_bytes_total",
    "Size of the record batches that were appended to partitions led by this broker.",
    TOPIC,
)
RECORDS_IN: Final = Counter(
    "lograft_topic_records_in_total",
    "Records that were appended to partitions led by this broker.",
    TOPIC,
)
BYTES_OUT: Final = Counter(
    "lograft_topic_out_bytes_total", "Size of the record batches that consumers fetched.", TOPIC
)
BYTES_REJECTED: Final = Counter(
    "lograft_topic_rejected_bytes_total", "Size of the record batches that were rejected.", TOPIC
)
BATCHES_REJECTED: Final = Counter(
    "lograft_topic_rejected_batches_total", "Record batches that were rejected.", TOPIC
)
FETCHES_FAILED: Final = Counter(
    "lograft_topic_failed_fetches_total",
    "Partitions of Fetch requests of consumers that were answered with an error.",
    TOPIC,
)
REPLICATION_BYTES_IN: Final = Counter(
    "lograft_topic_replication_in_bytes_total",
    "Size of the record batches that this broker fetched as a follower.",
    TOPIC,
)
REPLICATION_BYTES_OUT: Final = Counter(
    "lograft_topic_replication_out_bytes_total",
    "Size of the record batches that followers fetched from this broker.",
    TOPIC,
)
#: In the order of `TopicTraffic.counts`.
TOPIC_COUNTERS: Final = (
    BYTES_IN,
    RECORDS_IN,
    BYTES_OUT,
    BYTES_REJECTED,
    BATCHES_REJECTED,
    FETCHES_FAILED,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
)
TOPICS_HERE: Final = Gauge(
    "lograft_local_topics", "Topics of which this broker has replicas, including internal topics."
)

Counts = tuple[int, ...]
_NOTHING: Final[Counts] = (0,) * len(TOPIC_COUNTERS)


class TopicTraffic:
    """Counts of one topic, shared by its partitions; the hot path only adds to the attributes."""

    __slots__ = (
        "_counted_for_ranking",
        "batches_rejected",
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "fetches_failed",
        "in_other",
        "is_shown",
        "records_in",
        "replication_bytes_in",
        "replication_bytes_out",
        "shown",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.records_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.batches_rejected = 0
        self.fetches_failed = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        #: Whether the topic has series of its own.
        self.is_shown = False
        #: `in_other + shown == counts()` whenever `is_shown` changes; in between, only one of them
        #: grows.
        self.in_other = _NOTHING
        self.shown = _NOTHING
        self._counted_for_ranking = 0

    def counts(self) -> Counts:
        return (
            self.bytes_in,
            self.records_in,
            self.bytes_out,
            self.bytes_rejected,
            self.batches_rejected,
            self.fetches_failed,
            self.replication_bytes_in,
            self.replication_bytes_out,
        )

    def settle(self) -> None:
        """Adds what was counted since the last call to the own series or to `other`."""
        if self.is_shown:
            self.shown = _minus(self.counts(), self.in_other)
        else:
            self.in_other = _minus(self.counts(), self.shown)

    def set_shown(self, is_shown: bool) -> None:
        if is_shown is not self.is_shown:
            self.settle()
            self.is_shown = is_shown

    def take_growth(self) -> int:
        """Returns the bytes since the last call, by which topics are ranked."""
        total = (
            self.bytes_in + self.bytes_out + self.replication_bytes_in + self.replication_bytes_out
        )
        growth = total - self._counted_for_ranking
        self._counted_for_ranking = total
        return growth


class TopicTrafficTable:
    """The traffic of every topic of which this broker has a replica."""

    def __init__(self, clock: Clock, *, shown_max: Callable[[], int]) -> None:
        self._clock = clock
        self._shown_max = shown_max
        self._by_topic: dict[str, TopicTraffic] = {}
        self._shown_count = 0
        #: Requests for topics of which this broker has no replica; only in `other`.
        self._elsewhere = TopicTraffic()
        #: Counts of topics that no longer exist here, in `other`.
        self._retired = _NOTHING
        self._ranked_ms = clock.mono_ms()

    def of(self, topic: str) -> TopicTraffic:
        """Returns the counts of the topic, which gets series of its own if there is room."""
        traffic = self._by_topic.get(topic)
        if traffic is None:
            traffic = self._by_topic[topic] = TopicTraffic()
            if topic != OTHER and self._shown_count < self._shown_max():
                traffic.set_shown(True)
                self._shown_count += 1
        return traffic

    def find(self, topic: str) -> TopicTraffic:
        """Returns the counts of the topic, or those of all topics without a replica here."""
        return self._by_topic.get(topic, self._elsewhere)

    def remove(self, topic: str) -> None:
        """This broker has no replica of the topic any more: its series end."""
        traffic = self._by_topic.pop(topic, None)
        if traffic is not None:
            traffic.settle()
            self._retired = _plus(self._retired, traffic.in_other)
            self._shown_count -= traffic.is_shown

    def shown_topics(self) -> list[str]:
        """Returns the topics with series of their own."""
        return [topic for topic, traffic in self._by_topic.items() if traffic.is_shown]

    def collect_samples(self) -> Iterator[Sample]:
        """Also determines which topics are shown from the next collection on."""
        ranked: list[tuple[int, TopicTraffic]] | None = [] if self._is_ranking_due() else None
        yield TOPICS_HERE.sample(len(self._by_topic))
        other = _plus(self._retired, self._elsewhere.counts())
        for topic, traffic in list(self._by_topic.items()):
            traffic.settle()
            if traffic.in_other is not _NOTHING:
                other = _plus(other, traffic.in_other)
            if traffic.is_shown:
                for metric, value in zip(TOPIC_COUNTERS, traffic.shown, strict=True):
                    yield metric.sample(value, topic)
            else:
                yield BYTES_IN.sample(0, OTHER)
            if ranked is not None and topic != OTHER:
                ranked.append((traffic.take_growth(), traffic))
        for metric, value in zip(TOPIC_COUNTERS, other, strict=True):
            yield metric.sample(value, OTHER)
        if ranked is not None:
            self._show_busiest(ranked)

    def _is_ranking_due(self) -> bool:
        count, shown_max = len(self._by_topic), self._shown_max()
        if self._shown_count < min(count, shown_max) or self._shown_count > shown_max:
            # Topics were deleted, or the setting was changed.
            return True
        return count > shown_max and self._clock.mono_ms() - self._ranked_ms >= RANKING_MS

    def _show_busiest(self, ranked: list[tuple[int, TopicTraffic]]) -> None:
        self._ranked_ms = self._clock.mono_ms()
        busiest = {
            traffic: None for _, traffic in nlargest(self._shown_max(), ranked, key=_precedence)
        }
        for _, traffic in ranked:
            traffic.set_shown(traffic in busiest)
        self._shown_count = sum(traffic.is_shown for traffic in self._by_topic.values())


def _precedence(ranked: tuple[int, TopicTraffic]) -> tuple[int, bool]:
    growth, traffic = ranked
    return growth * (HYSTERESIS if traffic.is_shown else 1), traffic.is_shown


def _plus(first: Counts, second: Counts) -> Counts:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _minus(first: Counts, second: Counts) -> Counts:
    return tuple(a - b for a, b in zip(first, second, strict=True))
