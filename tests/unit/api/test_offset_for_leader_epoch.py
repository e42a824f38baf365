import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run, set_leader


async def send_request(
    bench: Bench, epoch: int, *, version: int = 4, current: int = -1, topic: str = "a"
) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=0, leader_epoch=epoch, current_leader_epoch=current
                    )
                ],
            )
        ]
    )
    if version >= 3:
        request.replica_id = -1
    response = await bench.ask(request, version, OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(2, 5))
@scenario(run)
async def test_returns_the_end_of_epochs(bench: Bench, /, version: int) -> None:
    (partition,) = await bench.create_topic("a")
    for epoch, count in ((0, 2), (3, 1), (5, 4)):
        set_leader(partition, 1, epoch=epoch)
        for _ in range(count):
            partition.append(
                memoryview(bytearray(batch_of(b"x"))), now_ms=bench.broker.clock.wall_ms()
            )
    found = {}
    for epoch in range(8):
        response = await send_request(bench, epoch, version=version)
        assert response.error_code == 0
        found[epoch] = (response.leader_epoch, response.end_offset)
    assert found == {
        0: (0, 2),
        1: (0, 2),
        2: (0, 2),
        3: (3, 3),
        4: (3, 3),
        5: (5, 7),
        6: (-1, -1),
        7: (-1, -1),
    }


@scenario(run)
async def test_errors(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    set_leader(partition, 1, epoch=3)
    assert (
        await send_request(bench, 0, topic="b")
    ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await send_request(bench, 0, current=2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await send_request(bench, 0, current=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await send_request(bench, 0, current=3)).error_code == 0
