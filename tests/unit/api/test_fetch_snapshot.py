from lograft.consensus import messages as core
from lograft.consensus.types import SnapshotId
from lograft.model.errors import ErrorCode
from lograft.model.types import Epoch, NodeId, Offset
from lograft.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


def request(position: int = 10, bytes_max: int = 100) -> FetchSnapshotRequest:
    asked = FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=3,
        snapshot_id=FetchSnapshotRequestSnapshotId(end_offset=30, epoch=2),
        position=position,
    )
    topic = FetchSnapshotRequestTopicSnapshot(name="__cluster_metadata", partitions=[asked])
    return FetchSnapshotRequest(
        cluster_id=CLUSTER_ID, replica_id=2, max_bytes=bytes_max, topics=[topic]
    )


@scenario(run)
async def test_returns_a_chunk_of_a_snapshot(bench: Bench, /) -> None:
    snapshot = SnapshotId(Offset(30), Epoch(2))
    bench.quorum.answer = core.FetchSnapshotResponse(
        sender=NodeId(1),
        epoch=Epoch(3),
        leader=NodeId(1),
        snapshot=snapshot,
        position=10,
        size_bytes=1000,
        data=b"piece",
    )
    response = await bench.ask(request(), 1, FetchSnapshotResponse, role="controller")
    (got,) = response.topics[0].partitions
    assert (got.snapshot_id.end_offset, got.snapshot_id.epoch) == snapshot
    assert (got.position, got.size, got.unaligned_records) == (10, 1000, b"piece")
    assert got.current_leader is not None
    assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (1, 3)
    assert bench.quorum.asked is not None
    asked, bytes_max = bench.quorum.asked
    assert isinstance(asked, core.FetchSnapshotRequest)
    assert (asked.snapshot, asked.position, bytes_max) == (snapshot, 10, 100)


@scenario(run)
async def test_errors_of_the_core_and_of_the_request_are_returned(bench: Bench, /) -> None:
    bench.quorum.answer = core.FetchSnapshotResponse(
        sender=NodeId(1), epoch=Epoch(3), error=core.Error.SNAPSHOT_NOT_FOUND
    )
    response = await bench.ask(request(), 1, FetchSnapshotResponse, role="controller")
    assert response.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    other = request()
    other.cluster_id = "other"
    response = await bench.ask(other, 1, FetchSnapshotResponse, role="controller")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    other = request()
    other.topics[0].partitions[0].partition = 1
    response = await bench.ask(other, 1, FetchSnapshotResponse, role="controller")
    assert response.error_code == ErrorCode.INVALID_REQUEST
