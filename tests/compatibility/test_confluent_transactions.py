"""confluent-kafka in transactions: atomicity, offsets with the records, fencing, timeouts."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tests.compatibility.librdkafka import (
    ANSWER_SECONDS_MAX,
    create_topic,
    error_code,
    produce,
    read,
    values_of,
)
from tests.compatibility.members import PROTOCOLS, joined, poll_until
from tests.compatibility.servers import Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
COMMITTED: dict[str, Any] = {"isolation.level": "read_committed"}
NO_OFFSET = -1001
UNCOMMITTED: dict[str, Any] = {"isolation.level": "read_uncommitted"}


def transactional(server: Server, identity: str, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "transactional.id": identity, "linger.ms": 1}
        | named
    )
    producer.init_transactions(ANSWER_SECONDS_MAX)
    return producer


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(ANSWER_SECONDS_MAX) == 0


def test_all_or_nothing(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=2)
    producer = transactional(server, topic)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            send(producer, topic, b"%d" % number, partition=partition)
        if number % 2:
            producer.abort_transaction(ANSWER_SECONDS_MAX)
        else:
            producer.commit_transaction(ANSWER_SECONDS_MAX)
    for partition in range(2):
        seen = read(server.bootstrap, topic, partition=partition, **COMMITTED)
        assert values_of(seen) == [b"0", b"2", b"4"]
        # There is a marker between two transactions.
        assert [message.offset() for message in seen] == [0, 4, 8]
        dirty = read(server.bootstrap, topic, partition=partition, **UNCOMMITTED)
        assert values_of(dirty) == [b"%d" % number for number in range(6)]


def test_readers_wait_for_the_end_of_a_transaction(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    producer = transactional(server, topic)
    producer.begin_transaction()
    send(producer, topic, b"open")
    produce(server.bootstrap, topic, [b"after"])
    assert values_of(read(server.bootstrap, topic, **UNCOMMITTED)) == [b"open", b"after"]
    assert values_of(read(server.bootstrap, topic, **COMMITTED)) == []
    producer.commit_transaction(ANSWER_SECONDS_MAX)
    assert values_of(read(server.bootstrap, topic, **COMMITTED)) == [b"open", b"after"]


@pytest.mark.parametrize("family", ["eager", "consumer"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_offsets_go_with_the_records(
    server: Server, new_topic: NewName, family: str, commits: bool
) -> None:
    source, target = new_topic(), new_topic()
    create_topic(server.bootstrap, source)
    create_topic(server.bootstrap, target)
    produce(server.bootstrap, source, [b"a", b"b", b"c"])
    producer = transactional(server, source)
    with joined(server.bootstrap, source, [source], PROTOCOLS[family], COMMITTED) as member:
        poll_until(lambda: len(member.values) == 3, member)
        producer.begin_transaction()
        send(producer, target, *(value.upper() for value in member.values if value))
        producer.send_offsets_to_transaction(
            [TopicPartition(source, 0, 3)],
            member.consumer.consumer_group_metadata(),
            ANSWER_SECONDS_MAX,
        )
        if commits:
            producer.commit_transaction(ANSWER_SECONDS_MAX)
        else:
            producer.abort_transaction(ANSWER_SECONDS_MAX)
        assert member.committed(source, 0) == (3 if commits else NO_OFFSET)
    seen = values_of(read(server.bootstrap, target, **COMMITTED))
    assert seen == ([b"A", b"B", b"C"] if commits else [])


def test_offsets_of_a_stranger_are_refused(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    producer = transactional(server, topic)
    with joined(server.bootstrap, topic, [topic], PROTOCOLS["eager"]) as old:
        poll_until(lambda: len(old.owned) == 1, old)
        metadata = old.consumer.consumer_group_metadata()
    producer.begin_transaction()
    with joined(server.bootstrap, topic, [topic], PROTOCOLS["eager"]) as new:
        poll_until(lambda: len(new.owned) == 1, new)
        at = [TopicPartition(topic, 0, 3)]
        with pytest.raises(KafkaException) as raised:
            producer.send_offsets_to_transaction(at, metadata, ANSWER_SECONDS_MAX)
        assert raised.value.args[0].txn_requires_abort()
        producer.abort_transaction(ANSWER_SECONDS_MAX)
        assert new.committed(topic, 0) == NO_OFFSET


def test_the_last_producer_of_a_name_wins(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    old = transactional(server, topic)
    old.begin_transaction()
    send(old, topic, b"lost")
    new = transactional(server, topic)
    with pytest.raises(KafkaException) as raised:
        old.commit_transaction(ANSWER_SECONDS_MAX)
    assert raised.value.args[0].fatal()
    assert error_code(raised.value) == KafkaError._FENCED
    new.begin_transaction()
    send(new, topic, b"kept")
    new.commit_transaction(ANSWER_SECONDS_MAX)
    assert values_of(read(server.bootstrap, topic, **COMMITTED)) == [b"kept"]


def test_a_transaction_that_lasts_too_long_is_aborted(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    producer = transactional(server, topic, transaction_timeout_ms=1000)
    producer.begin_transaction()
    send(producer, topic, b"late")
    produce(server.bootstrap, topic, [b"after"])
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while values_of(read(server.bootstrap, topic, **COMMITTED)) != [b"after"]:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException):
        producer.commit_transaction(ANSWER_SECONDS_MAX)
