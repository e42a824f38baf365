"""A load of small transactions from many producers: one record, then EndTxn, repeatedly."""

import struct
import time
from typing import Any, Final

from crc32c import crc32c

from bench.frames import CRC_POSITION, produce_error_position, values
from bench.latency import percentile
from bench.process import CpuMeter
from bench.swarm import Swarm
from lograft.wire.batches import CRC_START, build_batch
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from lograft.wire.messages.end_txn import EndTxnRequest
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

INIT_VERSION: Final = 4
#: From this version, Produce itself adds its partition to the transaction (KIP-890).
PRODUCE_VERSION: Final = {1: 11, 2: 12}
END_VERSION: Final = {1: 4, 2: 5}
ADD_VERSION: Final = 3
BODY_POSITION: Final = 5
#: Position of the error code: after correlation id, tags and throttle time.
END_ERROR_POSITION: Final = 9
#: Position of the producer id and epoch in the response to EndTxn of protocol 2.
NEXT_IDENTITY_POSITION: Final = 11
#: Positions of producer id, producer epoch and base sequence in a batch.
IDENTITY_POSITION: Final = 43
TIMEOUT_MS: Final = 60_000
#: The coordinator is still writing the markers of the previous transaction.
CONCURRENT_TRANSACTIONS: Final = 51
#: The same error in a response to Produce.
NOT_ENOUGH_REPLICAS: Final = 19
PASSING: Final = (CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS, 14, 15, 16)
RETRY_SECONDS: Final = 0.005
WARM_SECONDS_MIN: Final = 1.0


class TransactionFailed(Exception):
    """The server responded with an error that a producer cannot recover from."""


class Transactor:
    """One transactional id that writes to one partition. `protocol` is transaction.version: with 1,
    partitions are added by a separate request and the epoch does not change; with 2, neither
    applies."""

    def __init__(
        self, name: str, topic: str, partition: int, *, value_bytes: int, protocol: int
    ) -> None:
        self._name = name
        self._topic = topic
        self._partition = partition
        self._value_bytes = value_bytes
        self._protocol = protocol
        self._sequence = 0
        self._step = self._on_initialized
        self.committed = 0
        self.retries = 0
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        self.frame = build_frame(request, INIT_VERSION)

    def on_response(self, response: memoryview) -> float:
        return self._step(response)

    def _on_initialized(self, response: memoryview) -> float:
        answer = read_all(InitProducerIdResponse, INIT_VERSION, response, BODY_POSITION)
        if answer.error_code in PASSING:
            return self._again()
        check(answer.error_code, "InitProducerId")
        self._identity = (answer.producer_id, answer.producer_epoch)
        self._encode()
        return self._begin()

    def _encode(self) -> None:
        """These frames are changed in place from now on."""
        producer_id, epoch = self._identity
        batch = build_batch(
            values(1, self._value_bytes),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=self._partition, records=batch)]
        produce = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        self._produce = bytearray(build_frame(produce, PRODUCE_VERSION[self._protocol]))
        self._batch_start = self._produce.index(batch)
        self._batch_end = self._batch_start + len(batch)
        end = EndTxnRequest(
            transactional_id=self._name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        self._end = bytearray(build_frame(end, END_VERSION[self._protocol]))
        self._end_identity = self._end.index(struct.pack(">qh", producer_id, epoch))
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=self._topic, partitions=[self._partition])
            ],
        )
        self._add = build_frame(add, ADD_VERSION)

    def _begin(self) -> float:
        if self._protocol == 1:
            self.frame, self._step = self._add, self._on_added
            return 0.0
        return self._send()

    def _on_added(self, response: memoryview) -> float:
        # The only topic's only partition is last, before three empty tag sections.
        (code,) = struct.unpack_from(">h", response, len(response) - 5)
        if code in PASSING:
            return self._again()
        check(code, "AddPartitionsToTxn")
        return self._send()

    def _send(self) -> float:
        frame, start = self._produce, self._batch_start
        struct.pack_into(">qhi", frame, start + IDENTITY_POSITION, *self._identity, self._sequence)
        checked = memoryview(frame)[start + CRC_START : self._batch_end]
        struct.pack_into(">I", frame, start + CRC_POSITION, crc32c(checked))
        self.frame, self._step = bytes(frame), self._on_produced
        return 0.0

    def _on_produced(self, response: memoryview) -> float:
        (code,) = struct.unpack_from(">h", response, produce_error_position(self._topic))
        if code in PASSING:
            return self._again()
        check(code, "Produce")
        self._sequence += 1
        struct.pack_into(">qh", self._end, self._end_identity, *self._identity)
        self.frame, self._step = bytes(self._end), self._on_ended
        return 0.0

    def _on_ended(self, response: memoryview) -> float:
        (code,) = struct.unpack_from(">h", response, END_ERROR_POSITION)
        if code in PASSING:
            return self._again()
        check(code, "EndTxn")
        self.committed += 1
        if self._protocol == 2:
            self._identity = struct.unpack_from(">qh", response, NEXT_IDENTITY_POSITION)
            self._sequence = 0
        return self._begin()

    def _again(self) -> float:
        self.retries += 1
        return RETRY_SECONDS


def build_frame(request: Any, version: int) -> bytes:
    return frame_request(request, version, correlation_id=1, client_id="bench")


def check(code: int, what: str) -> None:
    if code:
        raise TransactionFailed(f"{what} was answered with error {code}")


def transactions(order: dict[str, Any]) -> dict[str, float]:
    swarm = Swarm(order["ports"][0])
    producers = [
        Transactor(
            f"{order['topic']}-{number}",
            order["topic"],
            number % order["partitions"],
            value_bytes=order["value_bytes"],
            protocol=order["protocol"],
        )
        for number in range(order["producers"])
    ]
    for producer in producers:
        swarm.add(producer)
    swarm.run(lambda: False, seconds_max=max(WARM_SECONDS_MIN, order["warm_seconds"]))
    before, retries = count(producers)
    swarm.waits = []
    started, cpu = time.perf_counter(), CpuMeter(order["pids"])
    swarm.run(lambda: False, seconds_max=order["seconds"])
    seconds, used = time.perf_counter() - started, cpu.read()
    committed, retries_after = count(producers)
    swarm.close()
    waits_ms = sorted(wait * 1000 for wait in swarm.waits)
    return {
        "transactions_per_s": (committed - before) / seconds,
        "cpu_us_per_transaction": used / (committed - before) * 1e6,
        "retries_per_transaction": (retries_after - retries) / (committed - before),
        "request_p50_ms": percentile(waits_ms, 0.5),
        "request_p99_ms": percentile(waits_ms, 0.99),
    }


def count(producers: list[Transactor]) -> tuple[int, int]:
    return sum(producer.committed for producer in producers), sum(
        producer.retries for producer in producers
    )
