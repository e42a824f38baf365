import asyncio

from lograft.broker.partitions.partition import Partition
from lograft.model.types import Offset
from lograft.simulation.disk import DiskFault
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run


def append(bench: Bench, partition: Partition) -> Offset:
    batch = memoryview(bytearray(batch_of(b"x")))
    return partition.append(batch, now_ms=bench.broker.clock.wall_ms()).end_offset


@scenario(run)
async def test_requests_that_come_during_a_flush_are_served_together(bench: Bench, /) -> None:
    partitions = await bench.create_topic("a", partitions=3, flush_messages="1")
    jobs = 0
    run_job = bench.life.runtime.workers.run

    async def counted(job, *, lane=""):  # type: ignore[no-untyped-def]
        nonlocal jobs
        jobs += 1
        return await run_job(job, lane=lane)

    for directory in bench.broker.logs.directories:
        directory.flusher._workers.run = counted  # type: ignore[method-assign]
    waits = [
        partition.wait_committed(append(bench, partition), timeout_ms=1000)
        for _ in range(20)
        for partition in partitions
    ]
    await asyncio.gather(*waits)
    assert jobs <= 2, "sixty appends of one turn need one flush, or two"
    assert [partition.high_watermark for partition in partitions] == [20, 20, 20]


@scenario(run)
async def test_an_append_during_a_flush_is_not_called_durable_by_it(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    first = append(bench, partition)
    waiting = asyncio.ensure_future(partition.wait_committed(first, timeout_ms=1000))
    assert partition.log is not None
    seen = []
    while not waiting.done():
        await asyncio.sleep(0.00001)
        if partition.log.end_offset < 50:
            append(bench, partition)
        seen.append((partition.high_watermark, partition.log.durable_offset))
    assert all(watermark <= durable for watermark, durable in seen)
    await partition.wait_committed(partition.log.end_offset, timeout_ms=1000)


@scenario(run)
async def test_a_rolled_segment_is_flushed_without_the_active_one(bench: Bench, /) -> None:
    """Regardless of flush.messages, so that recovery validates only a few segments."""
    small = "300"
    (plain,) = await bench.create_topic("a", internal_segment_bytes=small)
    (lazy,) = await bench.create_topic("b", internal_segment_bytes=small, flush_messages="1000")
    for partition in (lazy, plain):
        for _ in range(5):
            append(bench, partition)
        log = partition.log
        assert log is not None
        assert len(log.segments) > 1
        await asyncio.sleep(1)
        assert log.durable_offset == log.active.base_offset < log.end_offset
        assert not log.unflushed_files


@scenario(run)
async def test_a_deleted_partition_in_the_queue_is_passed_over(bench: Bench, /) -> None:
    kept, gone = await bench.create_topic("a", partitions=2, flush_messages="1")
    end = append(bench, kept)
    append(bench, gone)
    bench.broker._remove(gone)
    await kept.wait_committed(end, timeout_ms=1000)
    await asyncio.sleep(1)
    assert not bench.broker.logs.directories[0].offline


@scenario(run, metadata_log_dir="/meta", stop=False)
async def test_after_a_failure_nothing_more_is_acknowledged(bench: Bench, /) -> None:
    first, second = await bench.create_topic("a", partitions=2, flush_messages="1")
    bench.life.disk.faults.append(DiskFault(operation="fsync", path_part="a-0"))
    ends = [append(bench, first), append(bench, second)]
    results = await asyncio.gather(
        first.wait_committed(ends[0], timeout_ms=1000),
        second.wait_committed(ends[1], timeout_ms=1000),
        return_exceptions=True,
    )
    assert all(isinstance(result, Exception) for result in results)
    assert (first.high_watermark, second.high_watermark) == (0, 0)
