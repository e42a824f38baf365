import asyncio

import pytest

from lograft.model.errors import DiskFailed, ErrorCode
from lograft.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from lograft.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run


async def alter(
    bench: Bench, path: str, topic: str = "a", partition: int = 0, *, version: int = 2
) -> ErrorCode:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
            )
        ]
    )
    response = await bench.ask(request, version, AlterReplicaLogDirsResponse)
    (result,) = response.results
    assert result.topic_name == topic
    (reply,) = result.partitions
    assert reply.partition_index == partition
    return ErrorCode(reply.error_code)


async def places(bench: Bench) -> dict[str, list[tuple[bool, int, int]]]:
    response = await bench.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    return {
        result.log_dir: [
            (partition.is_future_key, partition.partition_size, partition.offset_lag)
            for topic in result.topics
            for partition in topic.partitions
        ]
        for result in response.results
    }


@pytest.mark.parametrize("version", [1, 2])
@scenario(run, log_dirs="/one,/two")
async def test_replica_move_is_listed_until_it_completes(bench: Bench, /, version: int) -> None:
    (partition,) = await bench.create_topic("a")
    batch = batch_of(b"x" * 100)
    for _ in range(3):
        partition.append(memoryview(bytearray(batch)), now_ms=bench.broker.clock.wall_ms())
    assert partition.directory is not None
    source = partition.directory.path
    (target,) = {"/one", "/two"} - {source}
    assert await alter(bench, target, version=version) is ErrorCode.NONE
    while (await places(bench))[target] == []:
        await asyncio.sleep(0.0001)
    ((is_future, size, lag),) = (await places(bench))[target]
    assert is_future
    assert size == (3 - lag) * len(batch)
    assert (await places(bench))[source] == [(False, 3 * len(batch), 0)]
    while bench.broker.moves.moves:
        await asyncio.sleep(0.001)
    assert await places(bench) == {source: [], target: [(False, 3 * len(batch), 0)]}


@scenario(run, log_dirs="/one,/two")
async def test_a_replica_whose_log_is_being_opened_is_not_available_yet(bench: Bench, /) -> None:
    (partition,) = bench.begin_topic("a")
    assert partition.log is None
    assert await alter(bench, "/two") is ErrorCode.REPLICA_NOT_AVAILABLE
    await partition.wait_open(timeout_ms=10_000)
    assert not bench.broker.moves.moves
    assert partition.directory is not None
    (target,) = {"/one", "/two"} - {partition.directory.path}
    assert await alter(bench, target) is ErrorCode.NONE
    while bench.broker.moves.moves:
        await asyncio.sleep(0.001)
    assert partition.directory.path == target


@scenario(run, log_dirs="/one,/two")
async def test_replicas_that_cannot_be_moved(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    assert await alter(bench, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert await alter(bench, "/two", "b") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(bench, "/two", partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (other,) = [d for d in bench.broker.logs.directories if d is not partition.directory]
    other.fail(DiskFailed(other.path, OSError(5, "broken")))
    assert await alter(bench, other.path) is ErrorCode.KAFKA_STORAGE_ERROR
