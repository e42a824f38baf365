"""Which records of a batch a broker rejects, and how clients see it (KIP-467): the same on Lograft
and on Apache Kafka."""

import asyncio
import time
from collections.abc import Callable

import pytest

from lograft.client import BatchRejected, Producer, RecordRejected
from lograft.model.errors import ErrorCode
from lograft.wire.batches import Record, build_batch
from lograft.wire.compression import Codec
from lograft.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compatibility import librdkafka
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Server
from tests.support.scenarios import scenario

pytestmark = [pytest.mark.clients]
NewName = Callable[[], str]
#: The last version with topic names.
VERSION = 12
MINUTE_MS = 60_000
LIMITED = {
    "message.timestamp.before.max.ms": str(MINUTE_MS),
    "message.timestamp.after.max.ms": str(MINUTE_MS),
}
COMPACTED = {"cleanup.policy": "compact"}
OLD, NOW, LATE = -2 * MINUTE_MS, 0, 2 * MINUTE_MS


def produce(
    server: Server, topic: str, batch: bytes, version: int = VERSION
) -> PartitionProduceResponse:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
            )
        ],
    )
    with connect(server) as connection:
        response = ask(connection, request, version)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("configs", "records", "code", "rejected"),
    [
        (COMPACTED, [(b"k", NOW), (None, NOW), (b"k", NOW), (None, NOW)], "INVALID_RECORD", [1, 3]),
        (LIMITED, [(None, OLD), (b"k", NOW), (None, LATE)], "INVALID_TIMESTAMP", [0, 2]),
        (LIMITED | COMPACTED, [(None, NOW), (b"k", OLD)], "INVALID_TIMESTAMP", [0, 1]),
        (LIMITED | COMPACTED, [(b"k", NOW), (None, OLD)], "INVALID_RECORD", [1]),
        (LIMITED | COMPACTED, [(b"k", NOW)], "NONE", []),
    ],
)
def test_the_response_names_the_rejected_records(
    server: Server,
    new_topic: NewName,
    configs: dict[str, str],
    records: list[tuple[bytes | None, int]],
    code: str,
    rejected: list[int],
    codec: Codec,
) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, configs=configs)
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch(
        [Record(index, now_ms + age, key, b"v") for index, (key, age) in enumerate(records)],
        compression=codec,
    )
    response = produce(server, topic, batch)
    assert response.error_code == ErrorCode[code]
    assert [error.batch_index for error in response.record_errors] == rejected
    assert all(error.batch_index_error_message for error in response.record_errors)
    assert bool(response.error_message) == bool(rejected)
    before_8 = produce(server, topic, batch, 7)
    assert (before_8.error_code, before_8.record_errors) == (ErrorCode[code], [])


@pytest.mark.conformance
@scenario()
async def test_our_producer_tells_rejected_records_from_the_others(
    server: Server, new_topic: NewName
) -> None:
    topic = new_topic()
    librdkafka.create_topic(server.bootstrap, topic, configs=COMPACTED)

    async with Producer(bootstrap_servers=server.bootstrap, linger_ms=200) as producer:
        keys = ["a", None, "b", None]
        deliveries = [await producer.enqueue(topic, b"v", key=key) for key in keys]
        errors = await asyncio.gather(*deliveries, return_exceptions=True)
        kinds = [BatchRejected, RecordRejected, BatchRejected, RecordRejected]
        assert [type(error) for error in errors] == kinds
        assert (await producer.send(topic, b"v", key="a")).offset == 0
