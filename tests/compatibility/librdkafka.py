"""Short functions for common operations with confluent-kafka (librdkafka)."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

ANSWER_SECONDS_MAX: Final = 30.0
BEGINNING: Final = 0


class Delivered(NamedTuple):
    offset: int
    error: KafkaError | None


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def outcome(answers: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
    """Waits for every response of an admin call; raises the first error."""
    return {key: answer.result(ANSWER_SECONDS_MAX) for key, answer in answers.items()}


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    replication_factor: int = 1,
) -> None:
    new = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        config=dict(configs or {}),
    )
    admin = admin_of(bootstrap)  # must outlive its futures
    try:
        outcome(admin.create_topics([new]))
    except KafkaException as error:
        # It chose a broker that is not in the latest metadata response.
        if error.args[0].name() != "_DESTROY_BROKER":
            raise
        outcome(admin.create_topics([new]))
    # Kafka responds before the new leaders are ready. A producer then retries, and without
    # idempotence its batches may be reordered; so this waits until the leaders accept requests.
    wait_for_leaders(admin, topic, partitions)


def wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    spec: Any = OffsetSpec
    asked = {TopicPartition(topic, index): spec.latest() for index in range(partitions)}
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        try:
            outcome(admin.list_offsets(asked))
        except (
            KafkaException
        ):  # of several kinds: leader unknown, not elected yet, or not this broker
            if time.monotonic() > deadline:
                raise
        else:
            return


def error_code(raised: BaseException) -> int:
    """Returns Kafka's error code in an exception of confluent-kafka."""
    assert isinstance(raised, KafkaException), raised
    error: KafkaError = raised.args[0]
    code: int = error.code()
    return code


def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    keys: Sequence[bytes | None] | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Delivered]:
    """Sends all values to one partition and returns the outcome of each, in order."""
    delivered: list[Delivered] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        delivered.append(Delivered(-1 if offset is None else offset, error))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **(settings or {})})
    for index, value in enumerate(values):
        optional: dict[str, Any] = {}
        if timestamps_ms:
            optional["timestamp"] = timestamps_ms[index]
        if headers is not None:
            optional["headers"] = headers
        producer.produce(
            topic,
            value=value,
            key=keys[index] if keys else None,
            partition=partition,
            on_delivery=on_delivery,
            **optional,
        )
        producer.poll(0)
    assert producer.flush(ANSWER_SECONDS_MAX) == 0, "some messages got no answer"
    return delivered


@contextmanager
def consumer_of(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "by-assign",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read_to_end(consumer: Consumer, *, partitions: int = 1) -> list[Message]:
    """Polls until the end of every assigned partition has been reported."""
    messages: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"end not reached after {len(messages)} messages"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
        else:
            raise KafkaException(error)
    return messages


def read(
    bootstrap: str, topic: str, *, partition: int = 0, offset: int = BEGINNING, **settings: Any
) -> list[Message]:
    with consumer_of(bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset)])
        return read_to_end(consumer)


def values_of(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]
