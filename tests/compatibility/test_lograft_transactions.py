"""Transactions of Lograft's producer on nodes of both kinds, in both protocols."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as AskedPartition

from lograft.client import (
    ClientError,
    GroupMetadata,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionFailed,
    blocking,
)
from lograft.client.producing import transactions
from tests.compatibility import librdkafka
from tests.compatibility.servers import Server, skip_before_4
from tests.support.scenarios import run_in_asyncio

pytestmark = [pytest.mark.clients, pytest.mark.conformance]
NewName = Callable[[], str]
ANSWER_SECONDS_MAX = 60


@pytest.fixture(params=["v1", "v2"])
def protocol(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server: Server
) -> str:
    if request.param == "v2":
        skip_before_4(server, "transactions of version 2")
    else:
        monkeypatch.setattr(transactions, "_FEATURE", "a feature that no cluster has")
    name: str = request.param
    return name


def producer_of(server: Server, identity: str, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=server.bootstrap, transactional_id=identity, **settings)


def committed(server: Server, topic: str, partition: int = 0) -> list[bytes | None]:
    settings: dict[str, Any] = {"isolation.level": "read_committed"}
    found = librdkafka.read(server.bootstrap, topic, partition=partition, **settings)
    return librdkafka.values_of(found)


def group_offset(server: Server, group: str, topic: str) -> int:
    asked = [ConsumerGroupTopicPartitions(group, [AskedPartition(topic, 0)])]
    admin: Any = librdkafka.admin_of(server.bootstrap)
    answers = librdkafka.outcome(admin.list_consumer_group_offsets(asked, require_stable=True))
    offset: int = answers[group].topic_partitions[0].offset
    return offset


def test_all_or_nothing_with_offsets(server: Server, new_topic: NewName, protocol: str) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, partitions=2)

    async def scenario() -> None:
        async with producer_of(server, topic) as producer:
            for number in range(6):
                await producer.begin_transaction()
                for partition in (0, 1):
                    await producer.enqueue(topic, b"%d" % number, partition=partition)
                await producer.send_offsets({TopicPartition(topic, 0): number}, topic)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    run_in_asyncio(scenario)
    for partition in (0, 1):
        assert committed(server, topic, partition) == [b"0", b"2", b"4"]
    assert group_offset(server, topic, topic) == 4


def test_a_newer_producer_fences_the_older(
    server: Server, new_topic: NewName, protocol: str
) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)

    async def scenario() -> None:
        async with producer_of(server, topic) as old, producer_of(server, topic) as new:
            await old.begin_transaction()
            await old.send(topic, b"old")
            async with new.transaction():
                await new.send(topic, b"new")
            with pytest.raises(ProducerFenced):
                await old.commit_transaction()
            with pytest.raises(ProducerFenced):
                await old.begin_transaction()

    run_in_asyncio(scenario)
    assert committed(server, topic) == [b"new"]


def test_what_breaks_a_transaction_leaves_the_producer_whole(
    server: Server, new_topic: NewName, protocol: str
) -> None:
    topic, small = new_topic(), new_topic()
    librdkafka.create_topic(server.bootstrap, topic)
    librdkafka.create_topic(server.bootstrap, small, configs={"max.message.bytes": "300"})

    async def scenario() -> None:
        async with producer_of(server, topic) as producer:
            for number in range(2):
                await producer.begin_transaction()
                await producer.send(topic, b"dropped")
                await producer.enqueue(small, b"v" * 500)
                with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
                    await producer.commit_transaction()
                await producer.abort_transaction()
                await producer.begin_transaction()
                await producer.send(topic, b"dropped too")
                stranger = GroupMetadata(topic, 3, "nobody")
                with pytest.raises(ClientError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
                    await producer.send_offsets({TopicPartition(topic, 0): 1}, stranger)
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number)

    run_in_asyncio(scenario)
    assert committed(server, topic) == [b"0", b"1"]
    assert committed(server, small) == []


def test_a_transaction_that_took_too_long_is_aborted_for_it(
    server: Server, new_topic: NewName, protocol: str
) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)

    async def scenario() -> None:
        async with producer_of(server, topic, transaction_timeout_ms=500) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"too long")
            await asyncio.to_thread(librdkafka.produce, server.bootstrap, topic, [b"after"])
            while await asyncio.to_thread(committed, server, topic) != [b"after"]:
                pass
            with pytest.raises(ClientError):
                await producer.commit_transaction()
        async with producer_of(server, topic) as producer, producer.transaction():
            await producer.send(topic, b"again")

    run_in_asyncio(scenario)
    assert committed(server, topic) == [b"after", b"again"]


def test_without_await(server: Server, new_topic: NewName, protocol: str) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)
    with blocking.Producer(bootstrap_servers=server.bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"kept")
        with contextlib.suppress(KeyError), producer.transaction():
            producer.send(topic, b"dropped")
            raise KeyError
        producer.begin_transaction()
        producer.send(topic, b"open")
    assert committed(server, topic) == [b"kept"]
