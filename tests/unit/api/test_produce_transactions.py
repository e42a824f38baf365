import asyncio
from collections.abc import Callable

import pytest

from lograft.broker.coordinators.transaction_verification import TransactionVerification
from lograft.broker.errors import PeerLost
from lograft.model.errors import ErrorCode
from lograft.model.exchange import PendingReply
from lograft.model.types import NodeId
from lograft.storage.types import TransactionEnd
from lograft.wire.message import Message
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run

NOW_MS = 1_767_225_600_000


class StandInCoordinator:
    """Confirms everything, or returns the responses that a test has prepared."""

    def __init__(self, bench: Bench) -> None:
        self.asked: list[tuple[bool, list[tuple[str, int]]]] = []
        self.codes: list[ErrorCode] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.lost = False
        broker = bench.broker
        broker.brokers.call_local = self._answer
        broker.verification = TransactionVerification(
            broker.brokers,
            broker.clock,
            coordinator_of=lambda _: NodeId(1),
            coordinators_here=None,
            metadata=broker.metadata,
        )

    async def _answer(self, message: Message, version: int) -> Message:
        assert isinstance(message, AddPartitionsToTxnRequest)
        (transaction,) = message.transactions
        names = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
        self.asked.append((transaction.verify_only, names))
        await asyncio.sleep(0.001)
        self.meanwhile()
        if self.lost:
            raise PeerLost("gone")
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index, partition_error_code=code
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
            ]
        )


def request_of(
    bench: Bench,
    sequence: int,
    *,
    partitions: tuple[int, ...] = (0,),
    transactional_id: str | None = "t",
    epoch: int = 0,
    first_producer: int = 7,
    same_producer: bool = True,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="a",
                topic_id=bench.topic_id("a"),
                partition_data=[
                    PartitionProduceData(
                        index=index,
                        records=batch_of(
                            b"v",
                            producer_id=first_producer + (0 if same_producer else index),
                            producer_epoch=epoch,
                            base_sequence=sequence,
                            transactional=True,
                        ),
                    )
                    for index in partitions
                ],
            )
        ],
    )


async def produce(bench: Bench, request: ProduceRequest, version: int = 12) -> list[ErrorCode]:
    response = await bench.ask(request, version, ProduceResponse)
    return [ErrorCode(a.error_code) for a in response.responses[0].partition_responses]


OK = ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 8, 9, 10, 11, 12, 13])
@scenario(run)
async def test_only_the_first_batch_of_a_transaction_is_verified(
    bench: Bench, /, version: int
) -> None:
    (partition,) = await bench.create_topic("a")
    coordinator = StandInCoordinator(bench)
    for sequence in range(3):
        assert await produce(bench, request_of(bench, sequence), version) == [OK]
    assert coordinator.asked == [(version < 12, [("a", 0)])]
    partition.append_marker(TransactionEnd(7, 0, True, 1), now_ms=NOW_MS)
    assert await produce(bench, request_of(bench, 3), version) == [OK]
    assert len(coordinator.asked) == 2
    assert partition.last_stable_offset == 4


@scenario(run)
async def test_one_request_verifies_all_partitions(bench: Bench, /) -> None:
    await bench.create_topic("a", partitions=3)
    coordinator = StandInCoordinator(bench)
    assert await produce(bench, request_of(bench, 0, partitions=(1,))) == [OK]
    assert await produce(bench, request_of(bench, 1, partitions=(1,))) == [OK]
    mixed = request_of(bench, 0, partitions=(0, 2))
    mixed.topic_data[0].partition_data += (
        request_of(bench, 2, partitions=(1,)).topic_data[0].partition_data
    )
    assert await produce(bench, mixed) == [OK, OK, OK]
    assert coordinator.asked == [(False, [("a", 1)]), (False, [("a", 0), ("a", 2)])]


@scenario(run)
async def test_later_requests_of_the_connection_wait_for_the_verification(bench: Bench, /) -> None:
    await bench.create_topic("a")
    StandInCoordinator(bench)
    first = bench.send(request_of(bench, 0), 12)
    assert isinstance(first, PendingReply)
    assert not first.allows_pipelining
    await first.response
    second = bench.send(request_of(bench, 1), 12)
    assert not isinstance(second, PendingReply), "the transaction is open"


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
@scenario(run)
async def test_error_codes_for_the_producer(
    bench: Bench, /, code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    (partition,) = await bench.create_topic("a")
    coordinator = StandInCoordinator(bench)
    coordinator.codes = [code]
    assert await produce(bench, request_of(bench, 0), version) == [expected]
    assert partition.high_watermark == 0
    assert len(coordinator.asked) == 1
    assert await produce(bench, request_of(bench, 0), version) == [OK]


@scenario(run)
async def test_unreachable_coordinator_makes_the_producer_retry(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    coordinator = StandInCoordinator(bench)
    coordinator.lost = True
    assert await produce(bench, request_of(bench, 0)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert partition.high_watermark == 0


@scenario(run)
async def test_waits_for_the_end_of_the_previous_transaction(bench: Bench, /) -> None:
    await bench.create_topic("a")
    coordinator = StandInCoordinator(bench)
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert await produce(bench, request_of(bench, 0)) == [OK]
    assert len(coordinator.asked) == 3
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
    request = request_of(bench, 0, first_producer=8)
    assert await produce(bench, request) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert 4 < len(coordinator.asked) < 12


@scenario(run)
async def test_marker_between_verification_and_append_rejects_the_batch(bench: Bench, /) -> None:
    """KAFKA-14884: the batch would begin a transaction that no producer ends."""
    (partition,) = await bench.create_topic("a")
    coordinator = StandInCoordinator(bench)
    abort = TransactionEnd(7, 0, False, 1)
    coordinator.meanwhile = lambda: partition.append_marker(abort, now_ms=NOW_MS) and None
    assert await produce(bench, request_of(bench, 0), 11) == [ErrorCode.INVALID_TXN_STATE]
    assert partition.leader_log().producers.open_transactions == 0
    assert partition.last_stable_offset == 1
    coordinator.meanwhile = lambda: None
    assert await produce(bench, request_of(bench, 0), 11) == [OK]


@scenario(run, transaction_partition_verification_enable="false")
async def test_verification_can_be_disabled_but_not_adding(bench: Bench, /) -> None:
    await bench.create_topic("a")
    coordinator = StandInCoordinator(bench)
    assert await produce(bench, request_of(bench, 0), 11) == [OK]
    assert coordinator.asked == []
    request = request_of(bench, 0, first_producer=8)
    assert await produce(bench, request, 12) == [OK]
    assert len(coordinator.asked) == 1


@scenario(run)
async def test_requests_without_transactional_id_or_with_two_producers(bench: Bench, /) -> None:
    await bench.create_topic("a", partitions=2)
    StandInCoordinator(bench)
    unknown_producer = request_of(bench, 0, transactional_id=None)
    rejected = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await produce(bench, unknown_producer) == [rejected]
    two = request_of(bench, 0, partitions=(0, 1), same_producer=False)
    assert await produce(bench, two) == [OK, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    unnamed = request_of(bench, 0, first_producer=-1)
    assert await produce(bench, unnamed) == [ErrorCode.INVALID_RECORD]


@scenario(run)
async def test_producers_retry_without_a_coordinator(bench: Bench, /) -> None:
    await bench.create_topic("a")
    assert await produce(bench, request_of(bench, 0)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
