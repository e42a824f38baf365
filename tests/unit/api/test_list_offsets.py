import pytest

from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode
from lograft.model.types import Offset
from lograft.simulation.disk import DiskFault
from lograft.storage.producers import UNVERIFIED
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run, set_leader

START = 1_767_225_600_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6


def fill(bench: Bench, partition: Partition, *timestamps: int) -> None:
    for timestamp in timestamps:
        batch = memoryview(bytearray(batch_of(b"x", timestamp=timestamp)))
        partition.append(batch, now_ms=bench.broker.clock.wall_ms())


async def send_request(
    bench: Bench,
    *timestamps: int,
    version: int = 11,
    isolation_level: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    topic: str = "a",
) -> list[ListOffsetsPartitionResponse]:
    responses = []
    for timestamp in timestamps:
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
                        )
                    ],
                )
            ],
        )
        response = await bench.ask(request, version, ListOffsetsResponse)
        responses.append(response.topics[0].partitions[0])
    return responses


@pytest.mark.parametrize("version", range(1, 12))
@scenario(run)
async def test_every_version_finds_earliest_latest_and_timestamps(
    bench: Bench, /, version: int
) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, START, START + 100, START + 200)
    partition.advance_log_start(Offset(1))
    responses = await send_request(
        bench, EARLIEST, LATEST, START + 150, START + 100, START + 999, version=version
    )
    assert [response.offset for response in responses] == [1, 3, 2, 1, -1]
    assert [response.timestamp for response in responses] == [-1, -1, START + 200, START + 100, -1]
    assert {response.error_code for response in responses} == {0}
    epochs = [response.leader_epoch for response in responses]
    assert epochs == ([0, 0, 0, 0, -1] if version >= 4 else [-1] * 5)


@scenario(run)
async def test_special_timestamps_of_later_versions(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    (empty,) = await send_request(bench, MAX_TIMESTAMP)
    assert (empty.offset, empty.timestamp, empty.error_code) == (-1, -1, 0)
    fill(bench, partition, START + 5, START + 50, START + 10)
    largest, local, tiered, pending = await send_request(
        bench, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING
    )
    assert (largest.offset, largest.timestamp) == (1, START + 50)
    assert (local.offset, tiered.offset, pending.offset) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING, 11)],
)
@scenario(run)
async def test_special_timestamps_are_rejected_in_older_versions(
    bench: Bench, /, timestamp: int, since: int
) -> None:
    await bench.create_topic("a")
    (before,) = await send_request(bench, timestamp, version=since - 1)
    (after,) = await send_request(bench, timestamp, version=since)
    assert before.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert after.error_code == 0


@scenario(run)
async def test_latest_depends_on_what_the_client_may_read(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, START)
    batch = batch_of(
        b"t",
        timestamp=START + 100,
        transactional=True,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    partition.append(memoryview(bytearray(batch)), now_ms=START, verification=UNVERIFIED)
    (uncommitted,) = await send_request(bench, LATEST)
    (committed,) = await send_request(bench, LATEST, isolation_level=1)
    assert (uncommitted.offset, committed.offset) == (2, 1)
    (found,) = await send_request(bench, START + 100)
    (hidden,) = await send_request(bench, START + 100, isolation_level=1)
    assert (found.offset, hidden.offset) == (1, -1)
    (debugging,) = await send_request(bench, LATEST, isolation_level=1, replica_id=-2)
    assert debugging.offset == 2


@scenario(run)
async def test_unflushed_records_are_not_visible_with_flush_messages_1(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    fill(bench, partition, START)
    (before,) = await send_request(bench, LATEST)
    await partition.wait_committed(Offset(1), timeout_ms=1000)
    (after,) = await send_request(bench, LATEST)
    assert (before.offset, after.offset) == (0, 1)


@scenario(run)
async def test_errors(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    set_leader(partition, 1, epoch=3)
    (unknown,) = await send_request(bench, LATEST, topic="b")
    (fenced,) = await send_request(bench, LATEST, epoch=2)
    (ahead,) = await send_request(bench, LATEST, epoch=4)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (unknown.offset, unknown.timestamp) == (-1, -1)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    set_leader(partition, 2, epoch=4)
    (moved,) = await send_request(bench, LATEST)
    assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@scenario(run)
async def test_duplicate_partition_is_an_invalid_request(bench: Bench, /) -> None:
    await bench.create_topic("a")
    twice = [ListOffsetsPartition(partition_index=0, timestamp=t) for t in (-1, -2)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=twice)]
    )
    response = await bench.ask(request, 5, ListOffsetsResponse)
    codes = [result.error_code for result in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


@scenario(run, log_dirs="/one,/two", metadata_log_dir="/two")
async def test_read_error_takes_the_log_dir_offline(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, START, START + 100)
    bench.life.disk.faults.append(DiskFault(operation="read", path_part="a-0"))
    (response,) = await send_request(bench, START + 50)
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline
