"""Members of consumer groups that process records and then commit, and that leave and rejoin.

Their reads are recorded as polls, with the group, the member and the generation of the assignment;
commits are separate operations. All members continue until the test sets `until`.
"""

import random
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException
from confluent_kafka import TopicPartition as Assigned

from lograft.model.types import TopicPartition
from tests.chaos.payloads import uid_in
from tests.chaos.recording import Run
from tests.chaos.topics import Topic

POLL_SECONDS: Final = 0.2
LIFE_SECONDS: Final = (5.0, 40.0)
AWAY_SECONDS_MAX: Final = 3.0
RESPONSE_SECONDS_MAX: Final = 10.0
POLL_INTERVAL_SECONDS: Final = 0.5
#: Long enough for a loaded machine, short enough to detect dead members in time.
SESSION_MS: Final = 10_000
CLASSIC: Final[Mapping[str, Any]] = {
    "partition.assignment.strategy": "range",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 1_000,
}
CONSUMER: Final[Mapping[str, Any]] = {"group.protocol": "consumer"}


def generation_in(metadata: bytes) -> int:
    """Returns the generation from librdkafka's group metadata, which starts with CGMDv2: and the
    generation."""
    head = b"CGMDv2:"
    assert metadata.startswith(head), metadata
    (generation,) = struct.unpack_from("=i", metadata, len(head))
    return int(generation)


def consumer_settings(run: Run, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": run.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 300,
        "fetch.wait.max.ms": 200,
        "log_level": 0,
    }


class GroupMember(threading.Thread):
    def __init__(
        self,
        run: Run,
        name: str,
        group: str,
        topic: Topic,
        *,
        until: threading.Event,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._run = run
        self._group = group
        self._topic = topic
        self._until = until
        self._settings = settings
        self._random = random.Random(f"{run.seed}-{name}")
        #: By partition: the generation of its assignment, the next offset, and the last offset that
        #: was certainly committed.
        self._generations: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._life = 0

    def run(self) -> None:
        while not self._until.is_set():
            self._life += 1
            consumer = Consumer({**consumer_settings(self._run, self._group), **self._settings})
            consumer.subscribe(
                [self._topic.name],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
            try:
                self._work(consumer)
            finally:
                consumer.close()
                self._forget(list(self._generations))
            self._until.wait(self._random.uniform(0, AWAY_SECONDS_MAX))

    @property
    def _member(self) -> str:
        return f"{self.name}.{self._life}"

    def _work(self, consumer: Consumer) -> None:
        end = time.monotonic() + self._random.uniform(*LIFE_SECONDS)
        while not self._until.is_set() and time.monotonic() < end:
            by_partition: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
            for message in consumer.consume(100, POLL_SECONDS):
                error = message.error()
                if error is not None:
                    if error.fatal():
                        self._run.trouble(self.name, error)
                    continue
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                uid = uid_in(message.value())
                by_partition[TopicPartition(topic, partition)].append((offset, uid))
            for tp, records in by_partition.items():
                self._record(tp, records)
            self._commit(consumer)

    def _record(self, tp: TopicPartition, records: list[tuple[int, str]]) -> None:
        history, proc = self._run.history, f"{self.name}@{tp}"
        arguments = {
            "tp": str(tp),
            "offset": self._next.get(tp, records[0][0]),
            "group": self._group,
            "member": self._member,
            "generation": self._generations.get(tp, -1),
            "is_first": tp not in self._next,
        }
        last = records[-1][0]
        history.record(proc, "invoke", "poll", **arguments)
        history.record(proc, "ok", "poll", records=records, hw=last + 1, log_start=0)
        self._next[tp] = last + 1

    def _commit(self, consumer: Consumer) -> None:
        """Commits the records processed since the last acknowledged commit."""
        offsets = {tp: end for tp, end in self._next.items() if end > self._committed.get(tp, 0)}
        if not offsets:
            return
        history = self._run.history
        arguments = {str(tp): offset for tp, offset in offsets.items()}
        history.record(
            self.name, "invoke", "commit", group=self._group, member=self._member, offsets=arguments
        )
        requested = [Assigned(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        try:
            results = consumer.commit(offsets=requested, asynchronous=False)
        except KafkaException as error:
            history.record(self.name, "info", "commit", error=str(error))
            return
        if any(each.error is not None for each in results or ()):
            history.record(self.name, "info", "commit", error="error of a partition")
            return
        history.record(self.name, "ok", "commit")
        self._committed |= offsets

    def _on_assign(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        generation = generation_in(consumer.consumer_group_metadata())
        assigned = [TopicPartition(each.topic, each.partition) for each in partitions]
        self._forget(assigned)
        self._generations |= dict.fromkeys(assigned, generation)
        self._run.history.record(
            self.name,
            "probe",
            "assigned",
            group=self._group,
            member=self._member,
            generation=generation,
            partitions=[str(tp) for tp in assigned],
        )

    def _on_revoke(self, _consumer: Consumer, partitions: list[Assigned]) -> None:
        self._forget([TopicPartition(each.topic, each.partition) for each in partitions])

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            for state in (self._generations, self._next, self._committed):
                state.pop(tp, None)


class OffsetWatcher(threading.Thread):
    """Fetches the committed offsets of groups repeatedly."""

    def __init__(
        self, run: Run, groups: Mapping[str, Topic], *, until: threading.Event, name: str = "ow"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._run = run
        self._groups = groups
        self._until = until

    def run(self) -> None:
        consumers = {group: Consumer(consumer_settings(self._run, group)) for group in self._groups}
        while not self._until.is_set():
            for group, consumer in consumers.items():
                fetch_committed(self._run, consumer, self.name, group, self._groups[group])
            self._until.wait(POLL_INTERVAL_SECONDS)
        for consumer in consumers.values():
            consumer.close()


def fetch_committed(
    run: Run, consumer: Consumer, name: str, group: str, topic: Topic
) -> dict[TopicPartition, int] | None:
    """Fetches the committed offsets and records an offset_fetch. Returns None after an error. The
    offset is 0 for partitions without one."""
    history = run.history
    requested = [Assigned(tp.topic, tp.partition) for tp in topic.of_partitions()]
    history.record(name, "invoke", "offset_fetch", group=group)
    try:
        results = consumer.committed(requested, timeout=RESPONSE_SECONDS_MAX)
    except KafkaException as error:
        history.record(name, "info", "offset_fetch", error=str(error))
        return None
    if any(each.error is not None for each in results):
        history.record(name, "info", "offset_fetch", error="error of a partition")
        return None
    offsets = {
        TopicPartition(each.topic, each.partition): (
            0 if each.offset == OFFSET_INVALID else each.offset
        )
        for each in results
    }
    history.record(
        name, "ok", "offset_fetch", offsets={str(tp): offset for tp, offset in offsets.items()}
    )
    return offsets
