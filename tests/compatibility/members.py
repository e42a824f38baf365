"""Members of consumer groups with confluent-kafka, polled in turn by one thread.

with joined(bootstrap, "group", [topic], EAGER) as member:
    poll_until(lambda: len(member.owned) == 2, member)
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

ANSWER_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.02
Owned = frozenset[tuple[str, int]]

#: A member of the classic protocol learns about a rebalance with its next heartbeat, so heartbeats
#: are frequent; in the consumer protocol the server sets the interval (conftest.SHARED_SETTINGS).
HEARTBEAT_MS: Final = 100
EAGER: Final = {
    "partition.assignment.strategy": "range",
    "heartbeat.interval.ms": HEARTBEAT_MS,
}
COOPERATIVE: Final = {
    "partition.assignment.strategy": "cooperative-sticky",
    "heartbeat.interval.ms": HEARTBEAT_MS,
}
CONSUMER: Final = {"group.protocol": "consumer"}
PROTOCOLS: Final[dict[str, Mapping[str, Any]]] = {
    "eager": EAGER,
    "cooperative": COOPERATIVE,
    "consumer": CONSUMER,
}


class Event(NamedTuple):
    """The argument of a rebalance callback."""

    what: str
    partitions: Owned


class Member:
    """A subscribed consumer that records its assignment, its callbacks and the records it has
    read."""

    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], settings: Mapping[str, Any]
    ) -> None:
        self.owned: Owned = frozenset()
        self.events: list[Event] = []
        self.values: list[bytes | None] = []
        self.error: KafkaError | None = None
        self.incremental = settings.get("group.protocol") == "consumer" or (
            "cooperative" in settings.get("partition.assignment.strategy", "")
        )
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                **settings,
            }
        )
        self.consumer.subscribe(
            list(topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self) -> None:
        """Reads all available records; stores a fatal error, and ignores transient ones."""
        message = self.consumer.poll(POLL_SECONDS)
        while message is not None:
            error = message.error()
            if error is None:
                self.values.append(message.value())
            elif error.fatal() or not is_passing(error):
                self.error = error
                return
            message = self.consumer.poll(0)

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        at = TopicPartition(topic, partition, offset, metadata)
        for done in self.consumer.commit(offsets=[at], asynchronous=False) or ():
            if done.error is not None:
                raise KafkaException(done.error)

    def committed(self, topic: str, partition: int) -> int:
        (found,) = self.consumer.committed([TopicPartition(topic, partition)], ANSWER_SECONDS_MAX)
        offset: int = found.offset
        return offset

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        new = owned_in(partitions)
        self.owned = self.owned | new if self.incremental else new
        self.events.append(Event("assigned", new))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop("revoked", partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop("lost", partitions)

    def _drop(self, what: str, partitions: list[TopicPartition]) -> None:
        gone = owned_in(partitions)
        self.owned -= gone
        self.events.append(Event(what, gone))


def owned_in(partitions: Sequence[TopicPartition]) -> Owned:
    return frozenset((partition.topic, partition.partition) for partition in partitions)


def is_passing(error: KafkaError) -> bool:
    """A new topic, a coordinator that moves: librdkafka reports it and continues by itself."""
    return error.code() in (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._PARTITION_EOF,
    )


@contextmanager
def joined(
    bootstrap: str, group: str, topics: Sequence[str], *settings: Mapping[str, Any]
) -> Iterator[Member]:
    member = Member(
        bootstrap, group, topics, {key: setting[key] for setting in settings for key in setting}
    )
    try:
        yield member
    finally:
        member.consumer.close()


def poll_until(
    is_reached: Callable[[], bool], *members: Member, seconds_max: float = ANSWER_SECONDS_MAX
) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_reached():
        assert time.monotonic() < deadline, [
            (sorted(member.owned), member.error, len(member.values), member.events)
            for member in members
        ]
        for member in members:
            member.poll()


def all_of(topic: str, partitions: int) -> Owned:
    return frozenset((topic, partition) for partition in range(partitions))


def share_evenly(members: Sequence[Member], wanted: Owned) -> bool:
    """Returns whether each partition has one owner and the numbers of partitions differ by at most
    one."""
    sizes = [len(member.owned) for member in members]
    return (
        sum(sizes) == len(wanted)
        and frozenset().union(*(member.owned for member in members)) == wanted
        and max(sizes) - min(sizes) <= 1
    )
