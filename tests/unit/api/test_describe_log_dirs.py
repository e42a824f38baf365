import pytest

from lograft.model.errors import DiskFailed, ErrorCode
from lograft.simulation.disk import DiskFault
from lograft.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run


@pytest.mark.parametrize("version", range(1, 6))
@scenario(run, log_dirs="/one,/two")
async def test_log_dirs_are_listed_with_their_partitions(bench: Bench, /, version: int) -> None:
    partitions = await bench.create_topic("a", partitions=3)
    batch = batch_of(b"x" * 100)
    partitions[0].append(memoryview(bytearray(batch)), now_ms=bench.broker.clock.wall_ms())
    everything = DescribeLogDirsRequest(topics=None)
    response = await bench.ask(everything, version, DescribeLogDirsResponse)
    assert [result.log_dir for result in response.results] == ["/one", "/two"]
    sizes = {
        partition.partition_index: partition.partition_size
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }
    assert sizes == {0: len(batch), 1: 0, 2: 0}
    if version >= 4:
        assert response.results[0].total_bytes > 0
        assert response.results[0].usable_bytes > 0
    if version >= 5:
        assert [result.is_cordoned for result in response.results] == [False, False]
    some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="a", partitions=[1])])
    response = await bench.ask(some, version, DescribeLogDirsResponse)
    found = [
        partition.partition_index
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    ]
    assert found == [1]


@scenario(run, log_dirs="/one,/two", metadata_log_dir="/two")
async def test_failed_log_dir_has_a_storage_error(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    bench.life.disk.faults.append(DiskFault(operation="write", path_part="a-0"))
    with pytest.raises(DiskFailed):
        partition.append(memoryview(bytearray(batch_of(b"x"))), now_ms=1_767_225_600_000)
    response = await bench.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    codes = {result.log_dir: result.error_code for result in response.results}
    assert codes == {"/one": ErrorCode.KAFKA_STORAGE_ERROR, "/two": 0}
