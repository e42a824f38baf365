"""Arrow tables through Lograft's client on nodes of both kinds, read by librdkafka and by key."""

import asyncio

import pyarrow as pa
import pytest

from lograft.client import Consumer, OffsetRange, Producer
from lograft.client.columns.decoder import HEADER_TYPE
from tests.compatibility import librdkafka
from tests.compatibility.servers import Server
from tests.compatibility.test_lograft_producer import NewName
from tests.support.scenarios import run_in_asyncio, scenario

pytestmark = [pytest.mark.clients, pytest.mark.conformance]

PARTITIONS = 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_tables_are_records_for_everybody(server: Server, new_topic: NewName, codec: str) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic)
    values = [b"value %d " % number * (number % 5) for number in range(2_000)]
    keys = [None if number % 7 == 0 else b"%d" % number for number in range(2_000)]
    lists = [[{"key": "n", "value": b"%d" % number}] * (number % 3) for number in range(2_000)]
    table = pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "headers": pa.array(lists, HEADER_TYPE),
            "timestamp": pa.array(range(1_000_000, 1_002_000), pa.timestamp("ms", tz="UTC")),
        }
    )

    async def scenario() -> None:
        settings = {"bootstrap.servers": server.bootstrap, "compression.type": codec}
        async with Producer(settings) as producer:
            ranges = await producer.send_arrow(topic, table, partition=0, batch_bytes=5_000)
            assert ranges == [OffsetRange(topic, 0, 0, 2_000)]

    run_in_asyncio(scenario)
    messages = librdkafka.read(server.bootstrap, topic, partition=0)
    assert [message.value() for message in messages] == values
    assert [message.key() for message in messages] == keys
    assert [message.timestamp()[1] for message in messages] == list(range(1_000_000, 1_002_000))
    assert [len(message.headers() or ()) for message in messages] == [i % 3 for i in range(2_000)]


@scenario()
async def test_keys_lie_where_java_looks_for_them(server: Server, new_topic: NewName) -> None:
    """Rows and columns are sent to the same partitions, and found by key."""
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, partitions=PARTITIONS)

    keys = [f"key {number}" for number in range(100)]
    given = {"bootstrap.servers": server.bootstrap}
    async with Producer(given) as producer, Consumer(given) as consumer:
        single = await asyncio.gather(*(producer.send(topic, b"old", key=key) for key in keys))
        await producer.send_arrow(topic, pa.table({"key": keys, "value": keys}))
        for key, place in zip(keys, single, strict=True):
            found = await consumer.get(topic, key)
            assert found is not None
            assert (found.partition, found.value) == (place.partition, key.encode())
        assert await consumer.get(topic, "nobody") is None
