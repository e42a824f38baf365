"""Transactions in a broker on a bench, with requests of producers and other brokers."""

import asyncio
from typing import Any, NamedTuple

from lograft.api.router import Router
from lograft.broker.coordinators.coordinator_runtime import SHARDS
from lograft.model.errors import ErrorCode
from lograft.model.metrics import value_of
from lograft.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from lograft.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.unit.broker.bench import LISTENER, Bench, Scenario, batch_of, run

#: The first versions of transaction protocol v2.
PRODUCE_V2, END_V2 = 12, 5
BROKERS_SINCE = 4
OK = ErrorCode.NONE
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_num_partitions": "2",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


class Producer(NamedTuple):
    producer_id: int
    epoch: int
    transactional_id: str = "x"


def play(scenario: Scenario, **settings: str) -> None:
    """Provides a topic "t" with three partitions."""

    async def with_coordinator(bench: Bench) -> None:
        broker = bench.broker
        broker.brokers.call_local = Router(
            broker.shared, broker, listener=LISTENER, role="broker", link=broker.link
        ).call
        await bench.create_topic("t", partitions=3)
        await find(bench)
        await scenario(bench)

    run(with_coordinator, **(SETTINGS | settings))


async def find(bench: Bench) -> None:
    for key_type, shards in ((0, bench.broker.groups), (1, bench.broker.transactions)):
        request = FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)
        response = await bench.ask(request, 4, FindCoordinatorResponse)
        assert response.coordinators[0].error_code == 0
        while value_of(shards, SHARDS, shards.topic, "loaded") < 2:
            await asyncio.sleep(0.001)


async def init(
    bench: Bench,
    transactional_id: str = "x",
    *,
    version: int = 5,
    had: Producer | None = None,
    timeout_ms: int = 60_000,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if had is not None:
        request.producer_id, request.producer_epoch = had.producer_id, had.epoch
    return await bench.ask(request, version, InitProducerIdResponse)


async def begin(bench: Bench, transactional_id: str = "x", **fields: int) -> Producer:
    """Initializes the producer, and retries while the previous transaction is being aborted."""
    while True:
        reply = await init(bench, transactional_id, **fields)  # type: ignore[arg-type]
        if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        await asyncio.sleep(0.02)
    assert reply.error_code == 0, reply
    return Producer(reply.producer_id, reply.producer_epoch, transactional_id)


async def add(
    bench: Bench,
    producer: Producer,
    partitions: dict[str, list[int]],
    *,
    version: int = 3,
    verify_only: bool = False,
) -> dict[tuple[str, int], int]:
    topics = [
        AddPartitionsToTxnTopic(name=name, partitions=indexes)
        for name, indexes in partitions.items()
    ]
    if version < BROKERS_SINCE:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
        response = await bench.ask(request, version, AddPartitionsToTxnResponse)
        return codes_of(response.results_by_topic_v3_and_below)
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=topics,
            )
        ]
    )
    response = await bench.ask(request, version, AddPartitionsToTxnResponse)
    (result,) = response.results_by_transaction
    assert result.transactional_id == producer.transactional_id
    return codes_of(result.topic_results)


def codes_of(topics: list[AddPartitionsToTxnTopicResult]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }


async def add_offsets(bench: Bench, producer: Producer, group: str, version: int = 4) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    return (await bench.ask(request, version, AddOffsetsToTxnResponse)).error_code


async def produce(
    bench: Bench,
    producer: Producer,
    *values: bytes,
    partition: int = 0,
    sequence: int = 0,
    version: int = PRODUCE_V2,
) -> int:
    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t" if version < 13 else "",
                topic_id=bench.topic_id("t"),
                partition_data=[
                    PartitionProduceData(
                        index=partition,
                        records=batch_of(
                            *values,
                            producer_id=producer.producer_id,
                            producer_epoch=producer.epoch,
                            base_sequence=sequence,
                            transactional=True,
                        ),
                    )
                ],
            )
        ],
    )
    response = await bench.ask(request, version, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


async def end(
    bench: Bench, producer: Producer, *, commit: bool = True, version: int = END_V2
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return await bench.ask(request, version, EndTxnResponse)


async def describe(bench: Bench, transactional_id: str = "x") -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response = await bench.ask(request, 0, DescribeTransactionsResponse)
    return response.transaction_states[0]


async def wait_state(bench: Bench, name: str, transactional_id: str = "x") -> None:
    while (await describe(bench, transactional_id)).transaction_state != name:
        await asyncio.sleep(0.01)


def stable_offset(bench: Bench, partition: int = 0) -> tuple[int, int]:
    """Returns last stable offset and high watermark."""
    found = bench.partition("t", partition)
    return found.last_stable_offset, found.high_watermark
