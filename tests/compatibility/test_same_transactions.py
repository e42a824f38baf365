"""Transactions in a log, batch by batch: random sequences of valid and invalid batches and markers
get the same responses from Lograft and from Apache Kafka.

No coordinator is involved. Partition verification is disabled, so that batches and markers of any
epoch reach the log; its responses, and what consumers then read, must be the same.
"""

import random
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from lograft.wire.batches import BatchHeader, Record, build_batch, iterate_headers
from lograft.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lograft.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import Server, compares_two

pytestmark = [
    pytest.mark.interop,
    compares_two(),
]
STEPS = 150
PRODUCERS = (7, 8, 9)
#: The last version that does not add partitions to transactions: no coordinator is involved.
PRODUCE_VERSION = 11
START_MS = 1_767_225_600_000
LATEST = -1


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    settings = {
        "transaction.partition.verification.enable": "false",
        "log.initial.task.delay.ms": "3600000",
    }
    kafka = Server.of("kafka", tmp_path_factory.mktemp("kafka"), settings=settings)
    ours = Server.of("lograft", tmp_path_factory.mktemp("lograft"), settings=settings)
    with kafka.started(), ours.started():
        yield kafka, ours


class Committed(NamedTuple):
    marks: tuple[int, int, int]
    batches: list[BatchHeader]
    aborted: set[tuple[int, int]]


class Subject:
    """The partition of a server, and its responses."""

    def __init__(self, connection: socket.socket, topic: str) -> None:
        self._connection = connection
        self._topic = topic

    def produce(self, batch: bytes) -> Any:
        request = ProduceRequest(
            transactional_id="t",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    partition_data=[PartitionProduceData(index=0, records=batch)],
                )
            ],
        )
        response = ask(self._connection, request, PRODUCE_VERSION)
        assert isinstance(response, ProduceResponse)
        (answer,) = response.responses[0].partition_responses
        return answer.error_code, answer.base_offset

    def write(self, marker: dict[str, Any], version: int) -> Any:
        topics = [WritableTxnMarkerTopic(name=self._topic, partition_indexes=[0])]
        request = WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=topics, **marker)])
        response = ask(self._connection, request, version)
        assert isinstance(response, WriteTxnMarkersResponse)
        return response.markers[0].topics[0].partitions[0].error_code

    def producers(self) -> Any:
        topics = [TopicRequest(name=self._topic, partition_indexes=[0])]
        response = ask(self._connection, DescribeProducersRequest(topics=topics), 0)
        assert isinstance(response, DescribeProducersResponse)
        (answer,) = response.topics[0].partitions
        return answer.error_code, sorted(
            (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch,
             p.current_txn_start_offset)
            for p in answer.active_producers
        )  # fmt: skip

    def latest(self, isolation: int) -> Any:
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topics = [ListOffsetsTopic(name=self._topic, partitions=[partition])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        response = ask(self._connection, request, 7)
        assert isinstance(response, ListOffsetsResponse)
        (answer,) = response.topics[0].partitions
        return answer.error_code, answer.offset

    def committed(self, offset: int, bytes_max: int) -> "Committed":
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=1,
            topics=[FetchTopic(topic=self._topic, partitions=[asked])],
        )
        response = ask(self._connection, request, 11)
        assert isinstance(response, FetchResponse)
        (answer,) = response.responses[0].partitions
        assert answer.aborted_transactions is not None
        assert isinstance(answer.records, bytes | bytearray | memoryview)
        return Committed(
            (answer.error_code, answer.high_watermark, answer.last_stable_offset),
            [header._replace(crc=0) for _, header in iterate_headers(answer.records)],
            {(a.producer_id, a.first_offset) for a in answer.aborted_transactions},
        )


def random_batch(chance: random.Random, epochs: dict[int, int], next_of: dict[int, int]) -> bytes:
    producer = chance.choice(PRODUCERS)
    epoch = max(0, epochs.get(producer, 0) + chance.choice((0, 0, 0, 0, 0, 0, 1, -1)))
    if epoch != epochs.get(producer, 0):
        sequence = 0
    else:
        sequence = max(0, next_of.get(producer, 0) + chance.choice((0, 0, 0, 0, 0, 0, -1, 1)))
    count = chance.randint(1, 3)
    return build_batch(
        [Record(i, START_MS, None, bytes(chance.choice((1, 400)))) for i in range(count)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=chance.random() < 0.85,
    )


def random_marker(chance: random.Random, epochs: dict[int, int]) -> tuple[dict[str, Any], int]:
    producer = chance.choice(PRODUCERS)
    version = chance.choice((1, 2))
    marker = {
        "producer_id": producer,
        "producer_epoch": max(0, epochs.get(producer, 0) + chance.choice((0, 0, 1, 1, -1))),
        "transaction_result": chance.random() < 0.5,
        "coordinator_epoch": chance.choice((3, 3, 3, 3, 2, 4)),
    }
    if version == 2:
        marker["transaction_version"] = chance.choice((1, 2))
    return marker, version


@pytest.mark.parametrize("seed", range(6))
def test_random_histories(pair: tuple[Server, Server], seed: int) -> None:
    chance = random.Random(seed)
    topic = f"history-{seed}"
    kafka, ours = pair
    for server in pair:
        create_topic(server.bootstrap, topic)
    with connect(kafka) as to_kafka, connect(ours) as to_lograft:
        theirs, mine = Subject(to_kafka, topic), Subject(to_lograft, topic)
        epochs: dict[int, int] = {}
        next_of: dict[int, int] = {}
        for step in range(STEPS):
            if chance.random() < 0.6:
                batch = random_batch(chance, epochs, next_of)
                step_text = f"step {step}: batch"
                expected, found = theirs.produce(batch), mine.produce(batch)
            else:
                marker, version = random_marker(chance, epochs)
                step_text = f"step {step}: v{version} {marker}"
                expected, found = theirs.write(marker, version), mine.write(marker, version)
            assert found == expected, step_text
            known = theirs.producers()
            assert mine.producers() == known, step_text
            for producer_id, epoch, last_sequence, *_ in known[1]:
                epochs[producer_id], next_of[producer_id] = epoch, last_sequence + 1
            assert mine.latest(1) == theirs.latest(1), step_text
        _, end = theirs.latest(0)
        for offset in range(0, end, 7):
            for bytes_max in (1, 1000, 1 << 20):
                compare(theirs.committed(offset, bytes_max), mine.committed(offset, bytes_max))


def compare(theirs: Committed, mine: Committed) -> None:
    assert mine.marks == theirs.marks
    for batch, expected in zip(mine.batches, theirs.batches, strict=True):
        if batch.is_control:  # has the clock of its server
            expected = expected._replace(base_timestamp=batch.base_timestamp)
            expected = expected._replace(max_timestamp=batch.max_timestamp)
        assert batch == expected
    # Both may also return transactions that start after the returned records.
    last = theirs.batches[-1].last_offset if theirs.batches else -1
    assert named(mine, last) == named(theirs, last)


def named(answer: Committed, last: int) -> set[tuple[int, int]]:
    return {each for each in answer.aborted if each[1] <= last}
