"""Producers: librdkafka's, and a raw one that deliberately retries.

Every record has a uid, and the outcome of each send is recorded in the history. A send without a
response is `info`: it may have been executed. `pid` in the history is the producer's index in the
run, not Kafka's producer ID; `seq` counts its records."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lograft.model.types import TopicPartition
from tests.chaos.payloads import value_of
from tests.chaos.raw_client import ErrorResponse, batch_of
from tests.chaos.recording import Run
from tests.chaos.topics import SEGMENT_BYTES, Topic

T = TypeVar("T")
DRAIN_SECONDS_MAX: Final = 60.0
#: A batch accumulated while the node is down must fit into the smallest segment.
BATCH_BYTES_MAX: Final = SEGMENT_BYTES // 2
IN_FLIGHT_MAX: Final = 1_000
#: Kafka recognises retries of the last five batches.
BATCHES_REMEMBERED: Final = 5
RETRY_SECONDS: Final = 0.05


class LibrdkafkaProducer(threading.Thread):
    """Uses librdkafka. With `gives_up`, unacknowledged records are dropped at the end of the run
    and errors are ignored, because the node may have lost acknowledged records."""

    def __init__(
        self,
        run: Run,
        index: int,
        topics: Sequence[Topic],
        *,
        idempotent: bool = True,
        pause_seconds: float = 0.08,
        gives_up: bool = False,
        rest_seconds: float = 0.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`pause_seconds` is the time to wait for responses, `rest_seconds` an additional pause."""
        super().__init__(name=f"p{index}", daemon=True)
        self._run = run
        self._topics = topics
        self._random = random.Random(f"{run.seed}-{self.name}")
        self._pid = index if idempotent else -1
        self._pause_seconds = pause_seconds
        self._rest_seconds = rest_seconds
        self._gives_up = gives_up
        self._sequence = 0
        self._producer = Producer(
            {
                "bootstrap.servers": run.bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 5,
                "batch.size": BATCH_BYTES_MAX,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 300,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
                **(settings or {}),
            }
        )

    def run(self) -> None:
        try:
            self._produce()
        except KafkaException as error:  # fatal: this producer cannot send any more records
            if not self._gives_up:
                self._run.trouble(self.name, error)

    def _produce(self) -> None:
        run = self._run
        while not run.stop.is_set():
            topic = self._random.choice(self._topics)
            tp = self._random.choice(topic.of_partitions())
            if len(self._producer) < IN_FLIGHT_MAX:
                for _ in range(self._random.randrange(1, 20)):
                    self._send(topic, tp)
            self._producer.poll(self._pause_seconds)
            run.stop.wait(self._rest_seconds)
        if self._gives_up:
            self._producer.purge()
        pending = self._producer.flush(DRAIN_SECONDS_MAX)
        if pending:
            run.trouble(self.name, f"{pending} records without a response")

    def _send(self, topic: Topic, tp: TopicPartition) -> None:
        uid = f"{self.name}-{self._sequence}"
        key = f"k{self._random.randrange(topic.keys)}" if topic.keys else None
        proc = f"{self.name}#{self._sequence}"
        arguments: dict[str, Any] = {
            "tp": str(tp),
            "uid": uid,
            "pid": self._pid,
            "seq": self._sequence,
            "durable": topic.durable,
        }
        if key is not None:
            arguments["key"] = key
        self._sequence += 1
        history = self._run.history

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None and offset >= 0:
                history.record(proc, "ok", "send", offset=offset)
            elif error is None:
                # DUPLICATE_SEQUENCE_NUMBER: the record exists, but the broker does not know its
                # offset.
                history.record(proc, "info", "send", acknowledged=True)
            else:
                history.record(proc, "info", "send", error=error.str())
                if not self._gives_up:
                    self._run.trouble(self.name, f"{tp}: {error}")

        history.record(proc, "invoke", "send", **arguments)
        self._producer.produce(
            tp.topic,
            value=value_of(uid, topic.value_bytes),
            key=None if key is None else key.encode(),
            partition=tp.partition,
            on_delivery=on_delivery,
        )


class Sent(NamedTuple):
    """An acknowledged batch, as sent on the wire."""

    batch: bytes
    uids: list[str]
    first_sequence: int


class RetryingProducer(threading.Thread):
    """Sends one batch at a time to a partition until it is acknowledged, and sometimes repeats an
    acknowledged batch, which must get the same offsets."""

    def __init__(
        self,
        run: Run,
        index: int,
        topic: Topic,
        tp: TopicPartition,
        *,
        timeout_seconds: float = DRAIN_SECONDS_MAX,
        remembered: int = BATCHES_REMEMBERED,
        rest_seconds_max: float = 0.03,
    ) -> None:
        """`remembered` is the number of latest batches whose retries must be recognised."""
        super().__init__(name=f"r{index}", daemon=True)
        assert not topic.keys
        self._run = run
        self._index = index
        self._topic = topic
        self._tp = tp
        self._random = random.Random(f"{run.seed}-{self.name}")
        self._client = run.client(self.name)
        self._sent: deque[Sent] = deque(maxlen=remembered)
        self._attempts = 0
        self._timeout_seconds = timeout_seconds
        self._rest_seconds_max = rest_seconds_max

    def run(self) -> None:
        try:
            self._produce()
        except ErrorResponse as error:
            self._run.trouble(self.name, f"{self._tp}: {error}")
        except TimeoutError as error:
            self._run.trouble(self.name, f"{self._tp}: {error}")
        finally:
            self._client.close()

    def _produce(self) -> None:
        producer_id, epoch = self._retry(self._client.producer_id)
        sequence = 0
        while not self._run.stop.is_set():
            if self._sent and self._random.random() < 0.2:
                self._exchange(self._random.choice(self._sent), is_retry=True)
            count = self._random.randrange(1, 6)
            uids = [f"{self.name}-{sequence + place}" for place in range(count)]
            batch = batch_of(
                [value_of(uid, self._topic.value_bytes) for uid in uids],
                now_ms=time.time_ns() // 1_000_000,
                producer_id=producer_id,
                producer_epoch=epoch,
                sequence=sequence,
            )
            sent = Sent(batch, uids, sequence)
            self._exchange(sent, is_retry=False)
            self._sent.append(sent)
            sequence += count
            self._run.stop.wait(self._random.random() * self._rest_seconds_max)

    def _exchange(self, sent: Sent, *, is_retry: bool) -> None:
        history = self._run.history
        self._attempts += 1
        procs = [f"{self.name}#{self._attempts}.{place}" for place in range(len(sent.uids))]
        for place, proc in enumerate(procs):
            history.record(
                proc,
                "invoke",
                "send",
                tp=str(self._tp),
                uid=sent.uids[place],
                pid=self._index,
                seq=sent.first_sequence + place,
                durable=self._topic.durable,
                retry=is_retry,
            )
        base = self._retry(lambda: self._client.produce(self._tp, sent.batch))
        for place, proc in enumerate(procs):
            history.record(proc, "ok", "send", offset=base + place)

    def _retry(self, operation: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                return operation()
            except OSError:
                pass
            except ErrorResponse as error:
                if error.code not in self._run.transient:
                    raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"no response for {self._timeout_seconds:.0f} s")
            time.sleep(RETRY_SECONDS)
