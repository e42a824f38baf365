"""Lograft's batches are identical, byte for byte, to those of Java's producer and of librdkafka."""

import asyncio
import random
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer as ConfluentProducer

from lograft.client.client_settings import ClientSettings
from lograft.client.core import ClientCore
from lograft.client.producer import Producer
from lograft.client.producing.batches import Batch
from lograft.wire.batches import HEADER_SIZE, iterate_headers
from lograft.wire.compression import Codec
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.compatibility import librdkafka
from tests.compatibility.servers import SMALL_JVM, Server, java_command
from tests.support.scenarios import scenario
from tools.kafka_jars import REPOSITORY, ensure_program

NewName = Callable[[], str]
BATCHES = 200
#: Base offset, length and leader epoch: the broker sets them.
BEFORE_MAGIC = 16


class Given(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def blob(chance: random.Random) -> bytes | None:
    size = chance.choice((-1, 0, 1, 5, 63, 64, 200, 9_000))
    return None if size < 0 else chance.randbytes(size)


def records_of(chance: random.Random) -> list[Given]:
    start = chance.randrange(1_000, 1 << 41)
    jumps = chance.choice(((0,), (0, 1, 70), (0, -1_000, 20_000, 1 << 33)))
    plain = chance.random() < 0.4
    return [
        Given(
            start + chance.choice(jumps),
            None if plain else blob(chance),
            b"v" * 90 if plain else blob(chance),
            []
            if plain
            else [(f"name {number} é", blob(chance)) for number in range(chance.randrange(3))],
        )
        for _ in range(chance.choice((1, 2, 70, 130)) if plain else chance.randrange(1, 9))
    ]


def hexed(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def line_of(records: list[Given], producer: tuple[int, int, int, bool]) -> str:
    words = [str(each).lower() for each in producer]
    for record in records:
        headers = ",".join(
            f"{name.encode().hex()}={hexed(value)}" for name, value in record.headers
        )
        words.append(f"{record.timestamp}:{hexed(record.key)}:{hexed(record.value)}:{headers}")
    return " ".join(words)


@pytest.mark.interop
def test_batches_are_those_of_java() -> None:
    ensure_program("javac", package="default-jdk-headless")
    chance = random.Random(17)
    given = [records_of(chance) for _ in range(BATCHES)]
    producers = [
        chance.choice(((-1, -1, -1, False), (7, 3, 11, False), (1 << 40, 9, 0, True)))
        for _ in given
    ]
    lines = "\n".join(map(line_of, given, producers)) + "\n"
    program = REPOSITORY / "tools" / "kafka" / "WriteBatches.java"
    written = subprocess.run(
        [*java_command(SMALL_JVM), str(program)],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()

    async def ours(records: list[Given], producer: tuple[int, int, int, bool]) -> str:
        batch = Batch("t", 0, 0, (0,))
        batch.is_transactional = producer[3]
        batch.set_producer(*producer[:3])
        for record in records:
            batch.append(*record)
        return batch.data(Codec.NONE, None).hex()

    for records, producer, theirs in zip(given, producers, written, strict=True):
        assert asyncio.run(ours(records, producer)) == theirs


@pytest.mark.clients
@scenario()
async def test_batches_are_those_of_librdkafka(server: Server, new_topic: NewName) -> None:
    chance = random.Random(18)
    theirs, ours = new_topic(), new_topic()
    for topic in (theirs, ours):
        librdkafka.create_topic(server.bootstrap, topic)
    given = [records_of(chance) for _ in range(20)]
    other = ConfluentProducer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 60_000, "acks": "all"}
    )
    for records in given:
        for record in records:
            headers: Any = record.headers
            other.produce(
                theirs, record.value, record.key, 0, timestamp=record.timestamp, headers=headers
            )
        assert other.flush(60) == 0

    async with Producer(
        bootstrap_servers=server.bootstrap,
        enable_idempotence=False,
        linger_ms=60_000,
        delivery_timeout_ms=200_000,
        batch_size=1_000_000,
    ) as producer:
        for records in given:
            for record in records:
                await producer.enqueue(
                    ours,
                    record.value,
                    key=record.key,
                    partition=0,
                    timestamp_ms=record.timestamp,
                    headers=record.headers,
                )
            await producer.flush()
    assert await batches_of(server, ours) == await batches_of(server, theirs)


async def batches_of(server: Server, topic: str) -> list[bytes]:
    """All attributes, from the magic byte on."""
    settings = ClientSettings.read({"bootstrap.servers": server.bootstrap})
    core = ClientCore(settings)
    found: list[bytes] = []
    try:
        await core.metadata.wait_topic(topic, deadline_ms=core.now_ms() + 60_000)
        node = next(iter(core.network.brokers))
        offset = 0
        while True:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24)
            request = FetchRequest(
                max_bytes=1 << 24, topics=[FetchTopic(topic=topic, partitions=[wanted])]
            )
            link = await core.network.connect(node)
            answer = await link.request(request, FetchResponse, version=12, timeout_ms=60_000)
            data = bytes(answer.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
            if not data:
                return found
            for position, header in iterate_headers(data):
                assert header.size_bytes > HEADER_SIZE
                found.append(data[position + BEFORE_MAGIC : position + header.size_bytes])
                offset = header.last_offset + 1
    finally:
        await core.close()
