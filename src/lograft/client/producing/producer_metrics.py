"""What the metrics of a producer count, besides those of its connections."""

from collections.abc import Iterator, Sequence
from typing import Final

from lograft.client.core import ClientCore
from lograft.client.metering.declarations import (
    CLIENT,
    ClientMetric,
    Distribution,
    Reading,
    Statistic,
    distribution,
    gauge,
    meter,
    total,
)
from lograft.client.metering.stopwatch import Stopwatch
from lograft.client.producing.accumulator import Accumulator
from lograft.client.producing.batches import Batch
from lograft.client.producing.settings import ProducerSettings

TOPIC: Final = "producer-topic-metrics"
_BY_TOPIC: Final = ("topic",)

BATCHES_SENT: Final = meter("batch-send", CLIENT, "Batches sent, including retries.")
BATCH_SIZES: Final = distribution("batch-size", CLIENT, "Bytes of a batch, as it was sent.")
BATCH_SPLITS: Final = meter(
    "batch-split", CLIENT, "Batches that were split because a broker rejected them as too large."
)
BATCHES_UNFINISHED: Final = gauge(
    "batches-unfinished", CLIENT, "Batches that are neither acknowledged nor failed."
)
BUFFER_AVAILABLE: Final = gauge(
    "buffer-available-bytes", CLIENT, "The part of buffer.memory that is not used."
)
BUFFER_EXHAUSTED: Final = meter(
    "buffer-exhausted", CLIENT, "Records that were not sent because the buffer was full."
)
BUFFER_SIZE: Final = gauge("buffer-total-bytes", CLIENT, "The setting buffer.memory.")
BUFFER_WAIT_RATIO: Final = ClientMetric(
    {"bufferpool-wait-ratio": Statistic.TIME_RATIO},
    CLIENT,
    "Fraction of the time that callers waited for space in the buffer.",
)
BUFFER_WAIT_TIME: Final = total(
    "bufferpool-wait-time-ns-total",
    CLIENT,
    "Nanoseconds that callers waited for space in the buffer.",
)
COMPRESSION_RATIO: Final = distribution(
    "compression-rate", CLIENT, "Size of a batch divided by its uncompressed size.", Statistic.AVG
)
FLUSH_TIME: Final = total(
    "flush-time-ns-total", CLIENT, "Nanoseconds that callers waited in flush."
)
METADATA_AGE: Final = gauge("metadata-age", CLIENT, "Seconds since the last metadata update.")
METADATA_WAIT_TIME: Final = total(
    "metadata-wait-time-ns-total", CLIENT, "Nanoseconds that callers waited for metadata."
)
THROTTLE_TIMES: Final = distribution(
    "produce-throttle-time", CLIENT, "Milliseconds that a broker throttled the producer."
)
RECORDS_ACKNOWLEDGED: Final = meter(
    "record-acknowledged", CLIENT, "Records that brokers acknowledged."
)
RECORD_ERRORS: Final = meter("record-error", CLIENT, "Records whose batch failed for good.")
QUEUE_TIMES: Final = distribution(
    "record-queue-time", CLIENT, "Milliseconds that a batch waited in the buffer."
)
RECORD_RETRIES: Final = meter("record-retry", CLIENT, "Records whose batch was retried.")
RECORDS_SENT: Final = meter("record-send", CLIENT, "Records sent, including retries.")
RECORD_SIZES: Final = distribution(
    "record-size", CLIENT, "Uncompressed bytes of the largest record of a batch."
)
RECORDS_PER_REQUEST: Final = distribution(
    "records-per-request", CLIENT, "Records of a Produce request.", Statistic.AVG
)
PRODUCE_LATENCIES: Final = distribution(
    "request-latency", CLIENT, "Milliseconds between a Produce request and its response."
)
IN_FLIGHT: Final = gauge("requests-in-flight", CLIENT, "Requests that have no response yet.")
WAITING: Final = gauge("waiting-threads", CLIENT, "Calls that wait for space in the buffer.")

TRANSACTION_INIT_TIME: Final = total(
    "txn-init-time-ns-total", CLIENT, "Nanoseconds in `init_transactions`."
)
TRANSACTION_BEGIN_TIME: Final = total(
    "txn-begin-time-ns-total", CLIENT, "Nanoseconds in `begin_transaction`."
)
TRANSACTION_OFFSETS_TIME: Final = total(
    "txn-send-offsets-time-ns-total", CLIENT, "Nanoseconds in `send_offsets`."
)
TRANSACTION_COMMIT_TIME: Final = total(
    "txn-commit-time-ns-total", CLIENT, "Nanoseconds in `commit_transaction`."
)
TRANSACTION_ABORT_TIME: Final = total(
    "txn-abort-time-ns-total", CLIENT, "Nanoseconds in `abort_transaction`."
)
TRANSACTION_PREPARE_TIME: Final = total(
    "txn-prepare-time-ns-total", CLIENT, "Nanoseconds in `prepare_transaction`."
)

TOPIC_BYTES: Final = meter("byte", TOPIC, "Bytes of the batches sent to a topic.", tags=_BY_TOPIC)
TOPIC_COMPRESSION_RATIO: Final = ClientMetric(
    {"compression-rate": Statistic.AVG},
    TOPIC,
    "Size of a batch of a topic divided by its uncompressed size.",
    tags=_BY_TOPIC,
)
TOPIC_ERRORS: Final = meter(
    "record-error", TOPIC, "Records of a topic whose batch failed for good.", tags=_BY_TOPIC
)
TOPIC_RETRIES: Final = meter(
    "record-retry", TOPIC, "Records of a topic whose batch was retried.", tags=_BY_TOPIC
)
TOPIC_RECORDS: Final = meter(
    "record-send", TOPIC, "Records sent to a topic, including retries.", tags=_BY_TOPIC
)


class TopicTraffic:
    __slots__ = ("bytes", "compression_ratios", "errors", "records", "retries")

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.retries = 0
        self.errors = 0
        self.compression_ratios = Distribution()


class ProducerMetrics:
    """The counts of one producer; the sender and the methods of the producer add to them."""

    def __init__(self, core: ClientCore[ProducerSettings], accumulator: Accumulator) -> None:
        clock = core.runtime.clock
        self._core = core
        self._accumulator = accumulator
        self._topics: dict[str, TopicTraffic] = {}
        self._batch_sizes = Distribution()
        self._queue_times_ms = Distribution()
        self._record_sizes = Distribution()
        self._records_per_request = Distribution()
        self._latencies_ms = Distribution()
        self._throttle_times_ms = Distribution()
        self._splits = 0
        self._acknowledged_records = 0
        self.flushing = Stopwatch(clock)
        self.initializing = Stopwatch(clock)
        self.beginning = Stopwatch(clock)
        self.sending_offsets = Stopwatch(clock)
        self.committing = Stopwatch(clock)
        self.aborting = Stopwatch(clock)
        self.preparing = Stopwatch(clock)

    def on_request(self, batches: Sequence[tuple[Batch, int]], now_ms: int) -> None:
        """Called for each Produce request, with its batches and their sizes as they are sent."""
        records = 0
        for batch, size in batches:
            count = batch.count
            records += count
            topic = self._topic(batch.topic)
            topic.records += count
            topic.bytes += size
            topic.compression_ratios.record(size / batch.size_bytes)
            self._batch_sizes.record(size)
            self._queue_times_ms.record(now_ms - batch.created_ms)
            self._record_sizes.record(batch.record_bytes_max or batch.size_bytes / count)
        self._records_per_request.record(records)

    def on_response(self, latency_ms: int, throttle_ms: int) -> None:
        self._latencies_ms.record(latency_ms)
        self._throttle_times_ms.record(throttle_ms)

    def on_acknowledged(self, batch: Batch) -> None:
        self._acknowledged_records += batch.count

    def on_retry(self, batch: Batch) -> None:
        self._topic(batch.topic).retries += batch.count

    def on_failed(self, batch: Batch) -> None:
        self._topic(batch.topic).errors += batch.count

    def on_split(self) -> None:
        self._splits += 1

    def collect_readings(self) -> Iterator[Reading]:
        topics = self._topics.values()
        ratios = Distribution()
        for topic in topics:
            ratios.add(topic.compression_ratios)
        yield BATCHES_SENT.read(self._batch_sizes.count)
        yield BATCHES_UNFINISHED.read(len(self._accumulator.unfinished))
        yield BATCH_SIZES.read(self._batch_sizes)
        yield BATCH_SPLITS.read(self._splits)
        yield COMPRESSION_RATIO.read(ratios)
        yield THROTTLE_TIMES.read(self._throttle_times_ms)
        yield RECORDS_ACKNOWLEDGED.read(self._acknowledged_records)
        yield RECORD_ERRORS.read(sum(topic.errors for topic in topics))
        yield RECORD_RETRIES.read(sum(topic.retries for topic in topics))
        yield RECORDS_SENT.read(sum(topic.records for topic in topics))
        yield QUEUE_TIMES.read(self._queue_times_ms)
        yield RECORD_SIZES.read(self._record_sizes)
        yield RECORDS_PER_REQUEST.read(self._records_per_request)
        yield PRODUCE_LATENCIES.read(self._latencies_ms)
        yield METADATA_AGE.read((self._core.now_ms() - self._core.metadata.succeeded_ms) / 1_000)
        yield METADATA_WAIT_TIME.read(self._core.metadata.waiting.total_ns)
        yield IN_FLIGHT.read(self._core.network.metrics.count_in_flight())
        yield from self._read_buffer()
        yield from self._read_times()
        for name, topic in self._topics.items():
            yield TOPIC_BYTES.read(topic.bytes, name)
            yield TOPIC_COMPRESSION_RATIO.read(topic.compression_ratios, name)
            yield TOPIC_ERRORS.read(topic.errors, name)
            yield TOPIC_RETRIES.read(topic.retries, name)
            yield TOPIC_RECORDS.read(topic.records, name)

    def _read_buffer(self) -> Iterator[Reading]:
        accumulator = self._accumulator
        yield BUFFER_AVAILABLE.read(accumulator.free_bytes)
        yield BUFFER_SIZE.read(accumulator.size_bytes)
        yield BUFFER_EXHAUSTED.read(accumulator.rejected_records)
        yield BUFFER_WAIT_RATIO.read(accumulator.waiting.total_ns)
        yield BUFFER_WAIT_TIME.read(accumulator.waiting.total_ns)
        yield WAITING.read(accumulator.waiter_count)

    def _read_times(self) -> Iterator[Reading]:
        yield FLUSH_TIME.read(self.flushing.total_ns)
        yield TRANSACTION_INIT_TIME.read(self.initializing.total_ns)
        yield TRANSACTION_BEGIN_TIME.read(self.beginning.total_ns)
        yield TRANSACTION_OFFSETS_TIME.read(self.sending_offsets.total_ns)
        yield TRANSACTION_COMMIT_TIME.read(self.committing.total_ns)
        yield TRANSACTION_ABORT_TIME.read(self.aborting.total_ns)
        yield TRANSACTION_PREPARE_TIME.read(self.preparing.total_ns)

    def _topic(self, name: str) -> TopicTraffic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = TopicTraffic()
        return topic
