import asyncio

import pytest

from lograft.broker.errors import (
    FencedLeaderEpoch,
    NotLeader,
    PartitionNotYetOpen,
    PartitionOffline,
    UnknownLeaderEpoch,
    WaitTimedOut,
)
from lograft.broker.partitions.lifecycle import IllegalTransition, PartitionState
from lograft.broker.partitions.partition import KeptOffsets, Partition
from lograft.broker.partitions.waits import wait_any
from lograft.model.errors import DiskFailed
from lograft.model.types import Offset
from lograft.simulation.disk import DiskFault
from lograft.storage.types import AppendResult
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run, set_leader


def append(bench: Bench, partition: Partition, *values: bytes) -> AppendResult:
    batch = memoryview(bytearray(batch_of(*values)))
    return partition.append(batch, now_ms=bench.broker.clock.wall_ms())


@scenario(run)
async def test_an_append_is_committed_at_once_with_one_replica(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    result = append(bench, partition, b"x", b"y")
    assert (result.base_offset, result.end_offset) == (0, 2)
    assert partition.high_watermark == 2
    assert partition.is_acknowledged(Offset(2), acks_all=True)
    part = partition.read(
        Offset(0), bytes_max=10_000, bound=partition.high_watermark, at_least_one=True
    )
    assert part is not None
    assert part.file.pread(part.size, part.position)[-3:-1] == b"\x02y"


@scenario(run)
async def test_flush_before_ack_commits_what_is_durable(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    first = append(bench, partition, b"x")
    assert partition.high_watermark == 0
    second = append(bench, partition, b"y")
    await partition.wait_committed(first.end_offset, timeout_ms=1000)
    await partition.wait_committed(second.end_offset, timeout_ms=1000)
    assert partition.log is not None
    assert partition.high_watermark == partition.log.durable_offset == 2


@scenario(run)
async def test_flush_after_so_many_messages_or_so_much_time(bench: Bench, /) -> None:
    (by_count,) = await bench.create_topic("count", flush_messages="3")
    (by_time,) = await bench.create_topic("time", flush_ms="500")
    assert by_count.log is not None
    assert by_time.log is not None
    append(bench, by_count, b"1", b"2")
    append(bench, by_time, b"1")
    await asyncio.sleep(0.4)
    assert by_count.log.durable_offset == 0
    assert by_time.log.durable_offset == 0
    append(bench, by_count, b"3")
    await asyncio.sleep(0.2)
    assert by_count.log.durable_offset == 3
    assert by_time.log.durable_offset == 1
    # Both complete without waiting for it.
    assert by_count.high_watermark == 3


@scenario(run)
async def test_a_rolled_segment_is_flushed_in_the_background(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", internal_segment_bytes="100")
    assert partition.log is not None
    append(bench, partition, b"x" * 30)
    await asyncio.sleep(0.1)
    assert partition.log.durable_offset == 0
    append(bench, partition, b"y" * 30)
    await asyncio.sleep(0.1)
    assert partition.log.durable_offset >= 1


@scenario(run)
async def test_leader_epochs_are_compared(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    set_leader(partition, 1, epoch=5)
    partition.check_epoch(-1)
    partition.check_epoch(5)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(4)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(6)


@scenario(run)
async def test_a_new_leader_sends_everyone_away(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    result = append(bench, partition, b"x")
    commit = asyncio.ensure_future(partition.wait_committed(result.end_offset, timeout_ms=10_000))
    poll = asyncio.ensure_future(wait_any([partition], bytes_missing=100, wait_ms=10_000))
    await asyncio.sleep(0)
    set_leader(partition, 2, epoch=1)
    with pytest.raises(NotLeader):
        await commit
    await poll
    with pytest.raises(NotLeader):
        append(bench, partition, b"y")
    with pytest.raises(NotLeader):
        partition.leader_log()


@scenario(run)
async def test_waiting_for_a_commit_ends_in_time(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    with pytest.raises(WaitTimedOut):
        await partition.wait_committed(Offset(1), timeout_ms=50)
    assert bench.broker.clock.mono_ms() < 1000


def test_a_failed_write_takes_the_log_dir_offline() -> None:
    async def scenario(bench: Bench) -> None:
        (good,) = await bench.create_topic("good")
        (bad,) = await bench.create_topic("bad")
        assert good.directory is not bad.directory
        assert bad.directory is not None
        bench.life.disk.faults.append(DiskFault(operation="write", path_part="bad-0"))
        with pytest.raises(DiskFailed):
            append(bench, bad, b"x")
        with pytest.raises(PartitionOffline):
            append(bench, bad, b"x")
        with pytest.raises(PartitionOffline):
            bad.read(Offset(0), bytes_max=1, bound=Offset(1), at_least_one=True)
        append(bench, good, b"x")
        assert bad.directory.offline
        assert good.directory in bench.broker.logs.online

    bench = run(scenario, log_dirs="/one,/two,/three", metadata_log_dir="/three")
    assert bench.halted == []


@scenario(run, log_dirs="/one,/two", metadata_log_dir="/one")
async def test_a_failed_fsync_fails_the_produce_that_waits_for_it(bench: Bench, /) -> None:
    await bench.create_topic("other")
    (partition,) = await bench.create_topic("a", flush_messages="1")
    bench.life.disk.faults.append(DiskFault(operation="fsync", path_part="a-0"))
    result = append(bench, partition, b"x")
    with pytest.raises(PartitionOffline):
        await partition.wait_committed(result.end_offset, timeout_ms=1000)


def test_the_node_halts_without_its_metadata_dir_or_any_dir() -> None:
    async def fail_a(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        bench.life.disk.faults.append(DiskFault(operation="write", path_part="a-0"))
        with pytest.raises(DiskFailed):
            append(bench, partition, b"x")

    (reason,) = run(fail_a, log_dirs="/one,/two", stop=False).halted
    assert "contains the metadata log" in reason
    (reason,) = run(fail_a, log_dirs="/one", metadata_log_dir="/meta", stop=False).halted
    assert "last log dir" in reason


@scenario(run)
async def test_settings_change_while_in_use(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    append(bench, partition, b"x")
    partition.on_config_changed(bench.broker.topic_config("a").__class__(flush_messages=1))
    assert partition.high_watermark == 1  # committed records remain committed
    result = append(bench, partition, b"y")
    assert partition.high_watermark == 1
    await partition.wait_committed(result.end_offset, timeout_ms=100)
    partition.on_config_changed(bench.broker.topic_config("a"))
    append(bench, partition, b"z")
    assert partition.high_watermark == 3


@scenario(run)
async def test_a_log_that_moves_takes_no_appends_whatever_its_role_says(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    append(bench, partition, b"x")
    partition.begin_move(KeptOffsets(Offset(0), Offset(0)))
    # A partition that can be in raft mode reports it with every change of its role.
    partition.on_ready()
    assert partition.is_opening
    with pytest.raises(PartitionNotYetOpen):
        append(bench, partition, b"y")
    partition.read(Offset(0), bytes_max=1, bound=Offset(1), at_least_one=True)
    partition.end_move()
    assert append(bench, partition, b"y").base_offset == 1


@scenario(run)
async def test_a_cut_that_ends_during_a_move_leaves_the_log_held(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    partition.begin_move(KeptOffsets(Offset(0), Offset(0)))
    partition.begin_truncation(KeptOffsets(Offset(0), Offset(0)))
    partition.end_truncation()
    assert partition.state is PartitionState.MOVING
    assert partition.kept_offsets is not None
    partition.end_move()
    assert partition.is_usable


@scenario(run)
async def test_what_was_under_way_ends_after_a_deletion(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    partition.begin_truncation(KeptOffsets(Offset(0), Offset(0)))
    partition.on_deleted()
    partition.on_offline("the disk is gone")
    partition.end_truncation()
    assert partition.is_deleted
    assert partition.kept_offsets is None
    with pytest.raises(IllegalTransition, match=r"move begun is not allowed when deleted"):
        partition.begin_move(KeptOffsets(Offset(0), Offset(0)))
