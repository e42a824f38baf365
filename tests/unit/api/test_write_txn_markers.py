import asyncio

import pytest

from lograft.broker.partitions.partition import Partition
from lograft.coordination.group_shard import GroupShard
from lograft.coordination.types import CoordinatorResult, Record, Ticket
from lograft.model.errors import ErrorCode
from lograft.model.exchange import PendingReply
from lograft.storage.producers import UNVERIFIED
from lograft.wire.batches import read_header, read_records
from lograft.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import fetch_all, play
from tests.unit.broker.bench import Bench, batch_of, run, set_leader

NOW_MS = 1_767_225_600_000


def marker_of(
    *partitions: tuple[str, int],
    commit: bool = True,
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 3,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=t, partition_indexes=[p]) for t, p in partitions],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def write(bench: Bench, *markers: WritableTxnMarker, version: int = 2) -> list[int]:
    request = WriteTxnMarkersRequest(markers=list(markers))
    response = await bench.ask(request, version, WriteTxnMarkersResponse)
    return [
        result.error_code
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    ]


def begin(partition: Partition, *, producer_id: int = 7, epoch: int = 0) -> None:
    batch = batch_of(
        b"t", transactional=True, producer_id=producer_id, producer_epoch=epoch, base_sequence=0
    )
    partition.append(memoryview(bytearray(batch)), now_ms=NOW_MS, verification=UNVERIFIED)


@pytest.mark.parametrize("version", [1, 2])
@scenario(run)
async def test_each_partition_gets_its_marker(bench: Bench, /, version: int) -> None:
    a0, a1 = await bench.create_topic("a", partitions=2)
    begin(a0)
    begin(a1)
    assert (a0.last_stable_offset, a1.last_stable_offset) == (0, 0)
    codes = await write(bench, marker_of(("a", 0), ("a", 1)), version=version)
    assert codes == [0, 0]
    assert (a0.last_stable_offset, a1.last_stable_offset) == (2, 2)
    part = a0.leader_log().read(1, bytes_max=1000)
    assert part is not None
    batch = part.file.pread(part.size, part.position)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, -1)
    (record,) = read_records(batch, bytes_max=1000)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\3")


@scenario(run)
async def test_abort_is_indexed(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    begin(partition)
    assert await write(bench, marker_of(("a", 0), commit=False)) == [0]
    (aborted,) = partition.leader_log().aborted_transactions(0, 10)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 1)


@scenario(run)
async def test_replaced_coordinators_and_old_epochs_are_fenced(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    begin(partition, epoch=1)
    assert await write(bench, marker_of(("a", 0), epoch=2, version=2)) == [0]
    end = partition.leader_log().end_offset
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await write(bench, marker_of(("a", 0), epoch=2, coordinator_epoch=2)) == [fenced]
    old = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await write(bench, marker_of(("a", 0), epoch=1)) == [old]
    begin(partition, epoch=2)
    assert await write(bench, marker_of(("a", 0), epoch=2, version=2)) == [old]
    assert partition.leader_log().end_offset == end + 1, "only the new transaction"


@scenario(run)
async def test_repeated_marker_gets_the_same_response(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    begin(partition)
    marker = marker_of(("a", 0), epoch=1, version=2, commit=False)
    assert await write(bench, marker) == [0]
    known = partition.leader_log().producers.derived_state()
    assert await write(bench, marker) == [0]
    assert partition.leader_log().producers.derived_state() == known
    assert len(partition.leader_log().aborted_transactions(0, 10)) == 1


@scenario(run)
async def test_response_waits_for_the_commit_without_blocking_others(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    begin(partition)
    request = WriteTxnMarkersRequest(markers=[marker_of(("a", 0))])
    reply = bench.send(request, 2)
    assert isinstance(reply, PendingReply)
    assert reply.allows_pipelining
    assert partition.last_stable_offset == 0
    await reply.response
    assert partition.high_watermark == partition.last_stable_offset == 2


@scenario(run)
async def test_partition_that_cannot_accept_markers_returns_an_error(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    begin(partition)
    set_leader(partition, 2, epoch=5)
    codes = await write(bench, marker_of(("a", 0), ("a", 1), ("nope", 0)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, unknown, unknown]
    set_leader(partition, -1, epoch=6)
    assert await write(bench, marker_of(("a", 0))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    # The leader is back, but not ready to accept appends, as may happen in Raft mode.
    set_leader(partition, 1, epoch=7)
    partition.pause_appends()
    assert await write(bench, marker_of(("a", 0))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partition.on_ready()
    assert await write(bench, marker_of(("a", 0))) == [0]


@scenario(run)
async def test_leader_change_during_the_wait_returns_an_error(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    begin(partition)
    response_task = asyncio.ensure_future(write(bench, marker_of(("a", 0))))
    await asyncio.sleep(0)
    set_leader(partition, 2, epoch=5)
    assert await response_task == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@scenario(run)
async def test_marker_fits_with_the_smallest_batch_limit(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", max_message_bytes="70")
    begin(partition)
    assert await write(bench, marker_of(("a", 0))) == [0]


@scenario(play)
async def test_group_coordinator_applies_the_end_of_the_transaction(bench: Bench, /) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = OffsetCommitValue(offset=5, metadata="")

    def decide(shard: GroupShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        return CoordinatorResult(
            records=[Record(key, value, 3)], replies=[(ticket, key)], producer=(7, 0)
        )

    await bench.broker.groups.ask("g", decide)
    index = bench.broker.groups.partition_of("g")
    assert await fetch_all(bench, 9) == {}
    assert await write(bench, marker_of(("__consumer_offsets", index), epoch=1)) == [0]
    assert (await fetch_all(bench, 9))["t"][0][0] == 5
    late = marker_of(("__consumer_offsets", index))
    assert await write(bench, late) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@scenario(play)
async def test_group_coordinator_that_is_not_ready_is_not_leader(bench: Bench, /) -> None:
    set_leader(bench.partition("__consumer_offsets", 1), 2, epoch=5)
    codes = await write(bench, marker_of(("__consumer_offsets", 1)))
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
