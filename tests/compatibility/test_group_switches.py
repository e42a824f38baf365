"""Consumers of both protocols continue while their topic, and the topic with their offsets, are
switched between ISR and Raft under load: no record is skipped, and no committed record is read
again."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.compatibility import conftest
from tests.compatibility.clusters import Cluster
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.members import (
    ANSWER_SECONDS_MAX,
    PROTOCOLS,
    Member,
    all_of,
    share_evenly,
)
from tests.compatibility.servers import full_run_only

pytestmark = [
    pytest.mark.interop,
    full_run_only(),
    pytest.mark.timeout(400),
]
TOPIC: Final = "work"
PARTITIONS: Final = 4
#: The last partition gets its records and its offset only once: in the others, an offset that a
#: coordinator lost would soon be committed again.
QUIET: Final = PARTITIONS - 1
QUIET_RECORDS: Final = 10
QUIET_POSITION: Final = 7
OFFSETS_TOPIC: Final = "__consumer_offsets"
SETTINGS: Final = {
    **conftest.SHARED_SETTINGS,
    "offsets.topic.num.partitions": str(PARTITIONS),
}
PATIENCE_SECONDS: Final = 90.0
#: A member commits after this many records, so that there are always uncommitted ones.
COMMIT_EVERY: Final = 20
RECORDS_PER_SECOND: Final = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster.of("lograft", tmp_path_factory.mktemp("switches"), settings=SETTINGS)
    conftest.running.extend(cluster.servers)
    with cluster.started():
        yield cluster
    for server in cluster.servers:
        conftest.running.remove(server)


class Load(threading.Thread):
    """Numbers the records of each partition from 0 on, without gaps."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="load")
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self.sent: Counter[int] = Counter()
        self.failed: list[KafkaError] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        for _ in range(QUIET_RECORDS):
            self._send(QUIET)
        number = 0
        while not self.is_over.wait(1 / RECORDS_PER_SECOND):
            self._send(number % QUIET)
            number += 1
        assert self._producer.flush(ANSWER_SECONDS_MAX) == 0

    def _send(self, partition: int) -> None:
        value = b"%d" % self.sent[partition]
        self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._on_delivery)
        self.sent[partition] += 1
        self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)


class Worker(Member):
    """Reads, commits at intervals, and reports to its group."""

    def __init__(self, bootstrap: str, group: "Group") -> None:
        self._group = group
        self._read: dict[int, tuple[int, int]] = {}
        self._uncommitted = 0
        super().__init__(bootstrap, group.name, [TOPIC], group.settings)

    def poll(self) -> None:
        message = self.consumer.poll(0.002)
        while message is not None:
            error = message.error()
            if error is None:
                self._take(message)
            elif error.fatal():
                raise KafkaException(error)
            else:
                self.error = error
            message = self.consumer.poll(0)
        if self._uncommitted >= COMMIT_EVERY:
            self._commit()

    def _take(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self._group.on_read(partition, int(value))
        self._read[partition] = (offset + 1, int(value) + 1)
        self._uncommitted += 1

    def _commit(self) -> None:
        self._uncommitted = 0
        mine = {partition for _, partition in self.owned if partition != QUIET}
        read = {partition: at for partition, at in self._read.items() if partition in mine}
        asked = [TopicPartition(TOPIC, partition, at) for partition, (at, _) in read.items()]
        if not asked:
            return
        try:
            done = self.consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException:
            return  # a rebalance was faster: the new owner of the partition reads it again
        for each in done or ():
            if each.error is None:
                self._group.committed[each.partition] = read[each.partition][1]

    def _on_assign(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._read.pop(each.partition, None)
        super()._on_assign(_consumer, partitions)

    def has_read_quiet(self) -> bool:
        """Since the partition was assigned."""
        return self._read.get(QUIET, (0, 0))[1] == QUIET_RECORDS


class Group:
    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.settings = settings
        self.workers: list[Worker] = []
        #: By partition: the first number that no member has read yet, and the first uncommitted
        #: one.
        self.next: Counter[int] = Counter()
        self.committed: Counter[int] = Counter()
        self.read = 0
        self.again = 0

    def on_read(self, partition: int, number: int) -> None:
        assert number <= self.next[partition], f"{self.name} was never given some of {partition}"
        assert number >= self.committed[partition], f"{self.name} got back what it had committed"
        self.again += number < self.next[partition]
        self.read += 1
        self.next[partition] = max(self.next[partition], number + 1)

    def join(self, bootstrap: str) -> None:
        self.workers.append(Worker(bootstrap, self))

    def leave(self) -> None:
        """The oldest member, with its uncommitted records."""
        self.workers.pop(0).consumer.close()

    def owner_of_quiet(self) -> Worker:
        return next(worker for worker in self.workers if (TOPIC, QUIET) in worker.owned)

    def has_read_all(self, load: Load) -> bool:
        return self.next == load.sent


def lograft(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lograft.cli.main", "topics", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Switch(threading.Thread):
    """Like an operator: requests the mode, and waits until all partitions have it."""

    def __init__(self, cluster: Cluster, topic: str, mode: str) -> None:
        super().__init__(name=f"{topic} to {mode}")
        self._servers = ("-b", cluster.bootstrap)
        self._topic = topic
        self._mode = mode
        self.error: AssertionError | None = None

    def run(self) -> None:
        try:
            lograft("alter", *self._servers, "--topic", self._topic, "--mode", self._mode)
            deadline = time.monotonic() + PATIENCE_SECONDS
            wanted = [f"{self._topic}-{index}  {self._mode}  leader" for index in range(PARTITIONS)]
            while True:
                described = lograft("describe", *self._servers, "--topic", self._topic)
                if all(line in described for line in wanted):
                    return
                assert time.monotonic() < deadline, described
        except AssertionError as error:
            self.error = error


def test_positions_go_on_through_switches_of_both_topics(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=3)
    groups = [Group(f"switched-{name}", PROTOCOLS[name]) for name in ("eager", "consumer")]
    load = Load(cluster.bootstrap)
    with ExitStack() as cleanup:
        for group in groups:
            for _ in range(2):
                group.join(cluster.bootstrap)
                cleanup.callback(group.leave)
        load.start()
        cleanup.callback(load.join)
        cleanup.callback(load.is_over.set)

        def poll_until(is_reached: Any) -> None:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not is_reached():
                assert time.monotonic() < deadline, [
                    (group.name, group.next, load.sent, each.error, each.events)
                    for group in groups
                    for each in group.workers
                ]
                for group in groups:
                    for worker in group.workers:
                        worker.poll()

        wanted = all_of(TOPIC, PARTITIONS)
        poll_until(
            lambda: all(
                share_evenly(group.workers, wanted) and group.owner_of_quiet().has_read_quiet()
                for group in groups
            )
        )
        for group in groups:
            group.owner_of_quiet().commit(TOPIC, QUIET, QUIET_POSITION, "kept")
            group.committed[QUIET] = QUIET_POSITION
        for topic in (TOPIC, OFFSETS_TOPIC, TOPIC, OFFSETS_TOPIC):
            is_raft = topic in cluster_modes(cluster, "raft")
            switch = Switch(cluster, topic, "isr" if is_raft else "raft")
            switch.start()
            poll_until(lambda switch=switch: not switch.is_alive())
            assert switch.error is None, switch.error
            before = [group.read for group in groups]
            poll_until(
                lambda before=before: all(
                    group.read >= read + 50 for group, read in zip(groups, before, strict=True)
                )
            )
            for group in groups:
                check_positions(group)
                group.leave()
                group.join(cluster.bootstrap)
            poll_until(lambda: all(share_evenly(group.workers, wanted) for group in groups))
        load.is_over.set()
        load.join()
        assert load.failed == []
        poll_until(lambda: all(group.has_read_all(load) for group in groups))


def cluster_modes(cluster: Cluster, mode: str) -> set[str]:
    """The topics whose first partition has this mode."""
    described = lograft("describe", "-b", cluster.bootstrap)
    return {topic for topic in (TOPIC, OFFSETS_TOPIC) if f"{topic}-0  {mode}  leader" in described}


def check_positions(group: Group) -> None:
    """The coordinator has the offsets that it acknowledged."""
    asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found = group.workers[0].consumer.committed(asked, ANSWER_SECONDS_MAX)
    for each in found:
        assert each.error is None, each.error
        # Raft's control batches have offsets, too: the offset of a record is at least its number.
        assert each.offset >= group.committed[each.partition], (group.name, each)
    assert (found[QUIET].offset, found[QUIET].metadata) == (QUIET_POSITION, "kept"), group.name
