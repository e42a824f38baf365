"""What a consumer counts of its fetches and polls."""

from collections.abc import Callable, Iterator
from typing import Final

from lograft.client.consuming.subscription import PartitionState, Subscription
from lograft.client.metering.declarations import (
    CLIENT,
    Distribution,
    Reading,
    Statistic,
    distribution,
    gauge,
    meter,
    total,
)
from lograft.client.metering.stopwatch import Stopwatch
from lograft.client.types import TopicPartition
from lograft.model.seams import Clock

FETCH: Final = "consumer-fetch-manager-metrics"
_BY_TOPIC: Final = ("topic",)
_BY_PARTITION: Final = ("topic", "partition")

CONSUMED_BYTES: Final = meter(
    "bytes-consumed", FETCH, "Bytes of the record batches that the application has begun to read."
)
CONSUMED_RECORDS: Final = meter(
    "records-consumed", FETCH, "Records that the application has received."
)
FETCHES: Final = meter("fetch", FETCH, "Fetch requests sent.")
FETCH_FAILURES: Final = meter("fetch-failure", FETCH, "Fetch requests that failed.")
FETCH_LATENCIES: Final = distribution(
    "fetch-latency", FETCH, "Milliseconds between a Fetch request and its response."
)
FETCH_SIZES: Final = distribution(
    "fetch-size", FETCH, "Bytes of the record batches of a Fetch response."
)
THROTTLE_TIMES: Final = distribution(
    "fetch-throttle-time", FETCH, "Milliseconds that a broker throttled the consumer."
)
RECORDS_PER_REQUEST: Final = distribution(
    "records-per-request", FETCH, "Records of a Fetch response.", Statistic.AVG
)
BUFFERED_BYTES: Final = gauge(
    "fetch-buffer-bytes", FETCH, "Bytes of the record batches that are fetched and not polled yet."
)
LAG_MAX: Final = distribution(
    "records-lag", FETCH, "Largest lag of a partition behind its end offset.", Statistic.MAX
)
LEAD_MIN: Final = distribution(
    "records-lead", FETCH, "Smallest lead of a partition before its first offset.", Statistic.MIN
)
TOPIC_CONSUMED_BYTES: Final = meter(
    "bytes-consumed",
    FETCH,
    "Bytes of the record batches of a topic that the application has begun to read.",
    tags=_BY_TOPIC,
)
TOPIC_CONSUMED_RECORDS: Final = meter(
    "records-consumed", FETCH, "Records of a topic that were received.", tags=_BY_TOPIC
)
TOPIC_FETCH_SIZES: Final = distribution(
    "fetch-size", FETCH, "Bytes of a topic in a Fetch response.", tags=_BY_TOPIC
)
TOPIC_RECORDS_PER_REQUEST: Final = distribution(
    "records-per-request",
    FETCH,
    "Records of a topic in a Fetch response.",
    Statistic.AVG,
    tags=_BY_TOPIC,
)
PARTITION_LAG: Final = gauge(
    "records-lag", FETCH, "Records between the position and the end offset.", tags=_BY_PARTITION
)
PARTITION_LAGS: Final = distribution(
    "records-lag", FETCH, "The lag when records were received.", tags=_BY_PARTITION
)
PARTITION_LEAD: Final = gauge(
    "records-lead", FETCH, "Records between the first offset and the position.", tags=_BY_PARTITION
)
PARTITION_LEADS: Final = distribution(
    "records-lead",
    FETCH,
    "The lead when records were received.",
    Statistic.AVG,
    Statistic.MIN,
    tags=_BY_PARTITION,
)
PREFERRED_REPLICA: Final = gauge(
    "preferred-read-replica",
    FETCH,
    "The follower that the partition is fetched from; -1 is the leader.",
    tags=_BY_PARTITION,
)

LAST_POLL: Final = gauge(
    "last-poll-seconds-ago", CLIENT, "Seconds since the last poll began; -1 before the first."
)
POLL_INTERVALS: Final = distribution(
    "time-between-poll", CLIENT, "Milliseconds between the starts of two polls."
)
POLL_IDLE_RATIO: Final = distribution(
    "poll-idle-ratio", CLIENT, "Fraction of the time that the application waits.", Statistic.AVG
)
COMMIT_TIME: Final = total("commit-sync-time-ns-total", CLIENT, "Nanoseconds in `commit`.")
COMMITTED_TIME: Final = total("committed-time-ns-total", CLIENT, "Nanoseconds in `committed`.")


class TopicConsumption:
    __slots__ = ("bytes", "fetch_sizes", "fetched_records", "records")

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.fetch_sizes = Distribution()
        #: Records of each response.
        self.fetched_records = Distribution()


class FetchMetrics:
    """The counts of one consumer; the fetcher and the collector add to them."""

    def __init__(self, subscription: Subscription, *, is_read_committed: bool) -> None:
        self._subscription = subscription
        self._is_read_committed = is_read_committed
        self._topics: dict[str, TopicConsumption] = {}
        self._records_per_request = Distribution()
        self._sizes = Distribution()
        self._latencies_ms = Distribution()
        self._throttle_times_ms = Distribution()
        self._fetches = 0
        self._failures = 0
        #: Counts the records of a run that has not ended.
        self.settle: Callable[[], None] = lambda: None

    def on_fetch(self) -> None:
        self._fetches += 1

    def on_failure(self) -> None:
        self._failures += 1

    def on_response(
        self, *, latency_ms: int, throttle_ms: int, size_bytes: int, records: int
    ) -> None:
        self._latencies_ms.record(latency_ms)
        self._throttle_times_ms.record(throttle_ms)
        if size_bytes:
            self._sizes.record(size_bytes)
            self._records_per_request.record(records)

    def on_topic_fetched(self, name: str, *, size_bytes: int, records: int) -> None:
        topic = self._topic(name)
        topic.fetch_sizes.record(size_bytes)
        topic.fetched_records.record(records)

    def on_slice_read(self, topic: str, size_bytes: int) -> None:
        """Called when the application gets the first record of a slice."""
        self._topic(topic).bytes += size_bytes

    def on_records(self, state: PartitionState, count: int) -> None:
        """Called with the number of records that the application has received, when its position is
        after them."""
        self._topic(state.partition.topic).records += count
        lag = state.lag(is_read_committed=self._is_read_committed)
        if lag is not None:
            state.lags.record(lag)
        lead = state.lead
        if lead is not None:
            state.leads.record(lead)

    def collect_readings(self) -> Iterator[Reading]:
        self.settle()
        topics = self._topics.values()
        yield CONSUMED_BYTES.read(sum(topic.bytes for topic in topics))
        yield CONSUMED_RECORDS.read(sum(topic.records for topic in topics))
        yield FETCHES.read(self._fetches)
        yield FETCH_FAILURES.read(self._failures)
        yield FETCH_LATENCIES.read(self._latencies_ms)
        yield FETCH_SIZES.read(self._sizes)
        yield THROTTLE_TIMES.read(self._throttle_times_ms)
        yield RECORDS_PER_REQUEST.read(self._records_per_request)
        yield BUFFERED_BYTES.read(sum(state.buffered_bytes for state in self._subscription))
        for name, topic in self._topics.items():
            yield TOPIC_CONSUMED_BYTES.read(topic.bytes, name)
            yield TOPIC_CONSUMED_RECORDS.read(topic.records, name)
            yield TOPIC_FETCH_SIZES.read(topic.fetch_sizes, name)
            yield TOPIC_RECORDS_PER_REQUEST.read(topic.fetched_records, name)
        lags, leads = Distribution(), Distribution()
        for state in self._subscription:
            lags.add(state.lags)
            leads.add(state.leads)
            yield from self._read_partition(state)
        yield LAG_MAX.read(lags)
        yield LEAD_MIN.read(leads)

    def _read_partition(self, state: PartitionState) -> Iterator[Reading]:
        tags = _tags_of(state.partition)
        lag = state.lag(is_read_committed=self._is_read_committed)
        if lag is not None:
            yield PARTITION_LAG.read(lag, *tags)
        yield PARTITION_LAGS.read(state.lags, *tags)
        lead = state.lead
        if lead is not None:
            yield PARTITION_LEAD.read(lead, *tags)
        yield PARTITION_LEADS.read(state.leads, *tags)
        yield PREFERRED_REPLICA.read(state.preferred_replica, *tags)

    def _topic(self, name: str) -> TopicConsumption:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = TopicConsumption()
        return topic


class PollMetrics:
    """The counts of the calls of one consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_ms: int | None = None
        self._interval_ms = 0
        self._intervals_ms = Distribution()
        self._idle_ratios = Distribution()
        self.committing = Stopwatch(clock)
        self.reading_committed = Stopwatch(clock)

    def on_poll_started(self) -> None:
        now_ms = self._clock.mono_ms()
        started_ms, self._started_ms = self._started_ms, now_ms
        self._interval_ms = 0 if started_ms is None else now_ms - started_ms
        self._intervals_ms.record(self._interval_ms)

    def on_poll_ended(self) -> None:
        assert self._started_ms is not None
        poll_ms = self._clock.mono_ms() - self._started_ms
        all_ms = poll_ms + self._interval_ms
        self._idle_ratios.record(poll_ms / all_ms if all_ms else 0)

    def collect_readings(self) -> Iterator[Reading]:
        started_ms = self._started_ms
        ago_ms = None if started_ms is None else self._clock.mono_ms() - started_ms
        yield LAST_POLL.read(-1 if ago_ms is None else ago_ms // 1_000)
        yield POLL_INTERVALS.read(self._intervals_ms)
        yield POLL_IDLE_RATIO.read(self._idle_ratios)
        yield COMMIT_TIME.read(self.committing.total_ns)
        yield COMMITTED_TIME.read(self.reading_committed.total_ns)


def _tags_of(partition: TopicPartition) -> tuple[str, str]:
    return partition.topic, str(partition.partition)
