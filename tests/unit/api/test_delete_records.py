import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run


async def delete(
    bench: Bench, topic: str, offset: int, *, version: int = 2, index: int = 0
) -> DeleteRecordsPartitionResult:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
        ],
        timeout_ms=1000,
    )
    response = await bench.ask(request, version, DeleteRecordsResponse)
    return response.topics[0].partitions[0]


async def filled(bench: Bench, topic: str, count: int) -> None:
    (partition,) = await bench.create_topic(topic)
    for _ in range(count):
        partition.append(memoryview(bytearray(batch_of(b"x"))), now_ms=bench.broker.clock.wall_ms())


@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_records_below_the_offset_are_deleted(bench: Bench, /, version: int) -> None:
    await filled(bench, "a", 5)
    response = await delete(bench, "a", 3, version=version)
    assert (response.error_code, response.low_watermark) == (0, 3)
    response = await delete(bench, "a", 1, version=version)
    assert (response.error_code, response.low_watermark) == (0, 3), (
        "the log start offset never decreases"
    )
    response = await delete(bench, "a", -1, version=version)
    assert (response.error_code, response.low_watermark) == (0, 5)
    log = bench.partition("a").log
    assert log is not None
    assert log.log_start_offset == 5


@scenario(run)
async def test_rejected_deletions(bench: Bench, /) -> None:
    await filled(bench, "a", 2)
    await bench.create_topic("compacted", cleanup_policy="compact")
    await bench.create_topic("__consumer_offsets")
    for offset in (3, -2):
        response = await delete(bench, "a", offset)
        assert (response.error_code, response.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert (await delete(bench, "b", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await delete(bench, "a", 0, index=9)).error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert (await delete(bench, "compacted", 0)).error_code == ErrorCode.POLICY_VIOLATION
    response = await delete(bench, "__consumer_offsets", 0)
    assert response.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
