from lograft.model.errors import ErrorCode
from lograft.storage.producers import UNVERIFIED
from lograft.storage.types import TransactionEnd
from lograft.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run, set_leader

NOW_MS = 1_767_225_600_000


async def describe(bench: Bench, topic: str, index: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    response = await bench.ask(request, 0, DescribeProducersResponse)
    return response.topics[0].partitions[0]


@scenario(run)
async def test_leader_and_follower_return_producers_with_open_transactions(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")

    def send(producer_id: int, *, transactional: bool) -> None:
        batch = batch_of(
            b"1",
            b"2",
            producer_id=producer_id,
            producer_epoch=4,
            base_sequence=0,
            transactional=transactional,
        )
        data = memoryview(bytearray(batch))
        partition.append(data, now_ms=NOW_MS, verification=UNVERIFIED)

    send(7, transactional=False)
    send(8, transactional=True)
    send(9, transactional=True)
    partition.append_marker(TransactionEnd(9, 5, True, 2, 2), now_ms=NOW_MS + 9)
    for _ in range(2):
        found = [
            (p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp - NOW_MS,
             p.coordinator_epoch, p.current_txn_start_offset)
            for p in (await describe(bench, "a")).active_producers
        ]  # fmt: skip
        assert found == [(7, 4, 1, 1, -1, -1), (8, 4, 1, 1, -1, 2), (9, 5, -1, 9, 2, -1)]
        set_leader(partition, 2, epoch=5)


@scenario(run)
async def test_partitions_without_a_local_replica_are_rejected(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    for topic, index in (("nope", 0), ("a", 1)):
        response = await describe(bench, topic, index)
        assert response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition.on_offline("gone")
    assert (await describe(bench, "a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
