"""Consumers with assigned partitions: librdkafka's, and a raw one that sees the high watermarks."""

import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assigned

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from tests.chaos.payloads import DamagedValue, uid_in
from tests.chaos.raw_client import EARLIEST, LATEST, ErrorResponse
from tests.chaos.recording import Run

POLL_SECONDS: Final = 0.2
RESPONSE_SECONDS_MAX: Final = 10.0
REWIND_CHANCE: Final = 0.03
RETRY_SECONDS: Final = 0.05


class LibrdkafkaReader(threading.Thread):
    """Reads every partition from its beginning, and new records as they arrive."""

    def __init__(self, run: Run, name: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(name=name, daemon=True)
        self._run = run
        self._next = dict.fromkeys(partitions, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": run.bootstrap,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 300,
                "fetch.wait.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        self._assign()
        try:
            while not self._run.stop.is_set():
                self._poll()
        except DamagedValue as error:
            self._run.trouble(self.name, f"damaged value {error}")
        finally:
            self._consumer.close()

    def _assign(self) -> None:
        self._consumer.assign(
            [Assigned(tp.topic, tp.partition, offset) for tp, offset in self._next.items()]
        )

    def _poll(self) -> None:
        by_partition: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
        for message in self._consumer.consume(200, POLL_SECONDS):
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            error = message.error()
            if error is not None:
                self._on_error(error, topic, partition)
                continue
            assert topic is not None
            assert partition is not None
            assert offset is not None
            by_partition[TopicPartition(topic, partition)].append((offset, uid_in(message.value())))
        for tp, records in by_partition.items():
            self._record(tp, records)

    def _record(self, tp: TopicPartition, records: list[tuple[int, str]]) -> None:
        if records[0][0] < self._next[tp]:
            return  # was in flight when the partition was assigned again
        history, proc = self._run.history, f"{self.name}@{tp}"
        _low, high = self._consumer.get_watermark_offsets(
            Assigned(tp.topic, tp.partition), cached=True
        )
        history.record(proc, "invoke", "poll", tp=str(tp), offset=self._next[tp])
        last = records[-1][0]
        result = {"records": records, "hw": high if high > 0 else last + 1, "log_start": 0}
        history.record(proc, "ok", "poll", **result)
        self._next[tp] = last + 1

    def _on_error(self, error: KafkaError, topic: str | None, partition: int | None) -> None:
        code = error.code()
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            assert topic is not None
            assert partition is not None
            tp = TopicPartition(topic, partition)
            try:
                low, _high = self._consumer.get_watermark_offsets(
                    Assigned(topic, partition), timeout=RESPONSE_SECONDS_MAX
                )
            except KafkaException:
                low = self._next[tp]  # the node is down: the next error leads here again
            if low > self._next[tp] or code != KafkaError.OFFSET_OUT_OF_RANGE:
                self._next[tp] = max(low, self._next[tp])
            self._assign()
        elif error.fatal():
            self._run.trouble(self.name, error)


class RawReader(threading.Thread):
    """Reads all partitions in turn, and sometimes reads old records again. It is the only client
    that records watermark probes, so that they are in the order of the responses."""

    def __init__(
        self,
        run: Run,
        name: str,
        partitions: Sequence[TopicPartition],
        *,
        sees_one_node: bool = True,
    ) -> None:
        """The high watermark that clients see may move back when the leader changes, so probes are
        recorded only if all responses are from one node."""
        super().__init__(name=name, daemon=True)
        self._run = run
        self._partitions = partitions
        self._sees_one_node = sees_one_node
        self._next = dict.fromkeys(partitions, 0)
        self._random = random.Random(f"{run.seed}-{name}")
        self._client = run.client(name)

    def run(self) -> None:
        while not self._run.stop.is_set():
            for tp in self._partitions:
                try:
                    self._read(tp)
                    if self._random.random() < 0.1:
                        self._list_offsets(tp)
                except OSError:
                    self._run.stop.wait(RETRY_SECONDS)
                except ErrorResponse as error:
                    if error.code not in self._run.transient:
                        self._run.trouble(self.name, f"{tp}: {error}")
            self._run.stop.wait(0.02)
        self._client.close()

    def _read(self, tp: TopicPartition) -> None:
        history = self._run.history
        offset = self._next[tp]
        is_rewind = self._random.random() < REWIND_CHANCE
        if is_rewind:
            offset = self._random.randrange(offset + 1)
        bytes_max = self._random.choice((300, 5_000, 1 << 20))
        history.record(self.name, "invoke", "poll", tp=str(tp), offset=offset)
        try:
            fetched = self._client.fetch(tp, offset, wait_ms=20, bytes_max=bytes_max)
        except OSError:
            history.record(self.name, "info", "poll")
            raise
        except ErrorResponse as error:
            history.record(self.name, "fail", "poll", error=error.code)
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._go_to_start(tp, offset)
            return
        history.record(
            self.name,
            "ok",
            "poll",
            records=fetched.records,
            hw=fetched.high_watermark,
            log_start=fetched.log_start,
            bad_crc=fetched.bad_crc,
        )
        if self._sees_one_node:
            history.record(
                self.name,
                "probe",
                "hw",
                tp=str(tp),
                log_start=fetched.log_start,
                lso=fetched.last_stable_offset,
                hw=fetched.high_watermark,
                end=fetched.high_watermark,
            )
        if not is_rewind:
            self._next[tp] = fetched.next_offset

    def _go_to_start(self, tp: TopicPartition, rejected: int) -> None:
        start, end = self._client.offset_at(tp, EARLIEST), self._client.offset_at(tp, LATEST)
        if start <= rejected <= end:
            # Legal only if the range has moved forwards between the two requests.
            self._run.trouble(
                self.name, f"{tp}: {rejected} is out of range, but the log has {start} to {end}"
            )
        self._next[tp] = max(start, self._next[tp])

    def _list_offsets(self, tp: TopicPartition) -> None:
        history = self._run.history
        for at, timestamp in (("latest", LATEST), ("earliest", EARLIEST)):
            history.record(self.name, "invoke", "list_offsets", tp=str(tp), at=at)
            try:
                offset = self._client.offset_at(tp, timestamp)
            except OSError:
                history.record(self.name, "info", "list_offsets")
                raise
            except ErrorResponse:
                history.record(self.name, "fail", "list_offsets")
                raise
            history.record(self.name, "ok", "list_offsets", offset=offset)
