import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import OFFSETS_TOPIC
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.support.scenarios import scenario
from tests.unit.api.transactions_bench import (
    OK,
    Producer,
    add,
    begin,
    codes_of,
    describe,
    end,
    play,
)
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_adds_partitions_to_the_transaction(bench: Bench, /, version: int) -> None:
    producer = await begin(bench)
    asked = {"t": [0, 2]}
    assert await add(bench, producer, asked, version=version) == {("t", 0): OK, ("t", 2): OK}
    state = await describe(bench)
    assert state.transaction_state == "Ongoing"
    assert {topic.topic: topic.partitions for topic in state.topics} == asked


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_unknown_partition_prevents_adding_the_others(bench: Bench, /, version: int) -> None:
    producer = await begin(bench)
    unknown, kept_out = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    codes = await add(bench, producer, {"t": [0, 7], "u": [0]}, version=version)
    assert codes == {("t", 0): kept_out, ("t", 7): unknown, ("u", 0): unknown}
    assert (await describe(bench)).transaction_state == "Empty"


@pytest.mark.parametrize("version", range(4))
@scenario(play)
async def test_producers_cannot_add_internal_topics(bench: Bench, /, version: int) -> None:
    producer = await begin(bench)
    rejected, kept_out = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    codes = await add(bench, producer, {"t": [0], OFFSETS_TOPIC: [0]}, version=version)
    assert codes == {("t", 0): kept_out, (OFFSETS_TOPIC, 0): rejected}


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_old_and_unknown_producers_are_rejected(bench: Bench, /, version: int) -> None:
    producer = await begin(bench)
    newer = await begin(bench)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH

    async def code(sender: Producer) -> int:
        return (await add(bench, sender, {"t": [0]}, version=version))["t", 0]

    assert await code(producer) == fenced
    assert await code(newer._replace(producer_id=5)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unknown = newer._replace(transactional_id="nobody's")
    assert await code(unknown) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await code(newer._replace(transactional_id="")) == ErrorCode.INVALID_REQUEST
    assert await code(newer) == OK


@pytest.mark.parametrize("version", [4, 5])
@scenario(play)
async def test_brokers_verify_without_adding(bench: Bench, /, version: int) -> None:
    producer = await begin(bench)
    await add(bench, producer, {"t": [0]})
    codes = await add(bench, producer, {"t": [0, 1]}, version=version, verify_only=True)
    missing = ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
    assert codes == {("t", 0): OK, ("t", 1): missing}
    state = await describe(bench)
    assert [topic.partitions for topic in state.topics] == [[0]]


@scenario(play)
async def test_brokers_verify_several_transactions_in_one_request(bench: Bench, /) -> None:
    producers = [await begin(bench, f"x{number}") for number in range(5)]
    await end(bench, producers[3], commit=False)
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
            )
            for producer in producers
        ]
    )
    response = await bench.ask(request, 5, AddPartitionsToTxnResponse)
    assert response.error_code == 0
    results = response.results_by_transaction
    assert [result.transactional_id for result in results] == [f"x{n}" for n in range(5)]
    codes = [set(codes_of(result.topic_results).values()) for result in results]
    assert codes == [{OK}] * 3 + [{ErrorCode.PRODUCER_FENCED}, {OK}]
