"""Retention, compaction and truncation: several steps, on the event loop and in a worker."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lograft.broker.partitions.partition import Partition
from lograft.metadata.topics import delete_topics
from lograft.model.types import Offset, TopicPartition
from lograft.simulation.disk import SimulatedDisk, SimulatedFile
from lograft.simulation.workers import SimulatedWorkers
from lograft.storage.log import Log
from lograft.storage.log_dirs import LOG_STARTS, RECOVERY_POINTS, read_checkpoint
from lograft.storage.retention import Removal
from lograft.wire.batches import Record, build_batch
from lograft.wire.messages.delete_topics import DeleteTopicsRequest
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, StandInController, new_machine, run

SMALL_SEGMENTS: Any = {"internal_segment_bytes": "400", "file_delete_delay_ms": "1000"}


def fill(bench: Bench, partition: Partition, count: int) -> Log:
    now_ms = bench.broker.clock.wall_ms()
    for number in range(count):
        batch = build_batch([Record(0, now_ms, b"key%d" % (number % 2), b"x" * 100)])
        partition.append(memoryview(bytearray(batch)), now_ms=now_ms)
    assert partition.log is not None
    return partition.log


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that were fsynced or unlinked outside of a worker's job."""
    on_loop: list[str] = []
    in_job = False
    run_job = SimulatedWorkers.run

    async def run_watched(self: SimulatedWorkers, job: Callable[[], Any], *, lane: str = "") -> Any:
        def watched() -> Any:
            nonlocal in_job
            in_job = True
            try:
                return job()
            finally:
                in_job = False

        return await run_job(self, watched, lane=lane)

    def noting(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def call(self: Any, *args: Any) -> Any:
            if not in_job:
                on_loop.append(f"{name} {args[0] if args else self.path}")
            return original(self, *args)

        monkeypatch.setattr(kind, name, call)

    monkeypatch.setattr(SimulatedWorkers, "run", run_watched)
    noting(SimulatedFile, "fsync")
    noting(SimulatedDisk, "fsync_dir")
    noting(SimulatedDisk, "unlink")
    noting(SimulatedDisk, "remove_tree")
    return on_loop


def test_nothing_waits_for_the_disk_on_the_loop(watch: list[str]) -> None:
    async def scenario(bench: Bench) -> None:
        (old,) = await bench.create_topic("old", retention_ms="60000", **SMALL_SEGMENTS)
        (compacted,) = await bench.create_topic(
            "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.1", **SMALL_SEGMENTS
        )
        (cut,) = await bench.create_topic("cut", flush_messages="1", **SMALL_SEGMENTS)
        logs = [fill(bench, partition, 20) for partition in (old, compacted, cut)]
        before = logs[1].size_bytes
        await asyncio.sleep(1)
        await bench.broker.logs.truncate(cut, Offset(3))
        await asyncio.sleep(700)
        assert logs[0].log_start_offset == 20
        assert logs[1].size_bytes < before
        assert logs[2].end_offset == 3
        request = DeleteTopicsRequest(topic_names=["old"])
        await bench.controller.submit(
            lambda image: delete_topics(image, request, config=bench.config)
        )
        await asyncio.sleep(100)
        names = bench.life.disk.list_dir("/data")
        assert not any(name.startswith("old") for name in names)

    run(scenario)
    assert watch == []


def test_a_cut_log_goes_on_after_a_kill() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a", flush_messages="1", **SMALL_SEGMENTS)
        log = fill(bench, partition, 20)
        await asyncio.sleep(70)
        recovery_points = f"/data/{RECOVERY_POINTS}"
        assert read_checkpoint(bench.life.disk, recovery_points)[TopicPartition("a", 0)] == 20
        await bench.broker.logs.truncate(partition, Offset(7))
        assert log.end_offset == log.durable_offset == 7
        assert read_checkpoint(bench.life.disk, recovery_points)[TopicPartition("a", 0)] == 7
        await bench.broker.logs.truncate_fully_and_start_at(partition, Offset(50))
        assert (log.log_start_offset, log.end_offset) == (50, 50)
        assert read_checkpoint(bench.life.disk, recovery_points)[TopicPartition("a", 0)] == 0

    run(first, machine=machine, controller=controller, stop=False)
    machine.kill()

    async def second(bench: Bench) -> None:
        log = bench.partition("a").log
        assert log is not None
        assert (log.log_start_offset, log.end_offset) == (50, 50)
        fill(bench, bench.partition("a"), 2)

    run(second, machine=machine, controller=controller)


@scenario(run)
async def test_the_checkpoint_keeps_the_log_start_until_the_files_are_gone(bench: Bench, /) -> None:
    """Otherwise records that a client has deleted would return after a crash."""
    (partition,) = await bench.create_topic("a", **SMALL_SEGMENTS)
    log = fill(bench, partition, 20)
    base = log.segments[3].base_offset
    partition.advance_log_start(Offset(base))
    removal = log.plan_removal(bench.broker.clock.wall_ms(), partition.high_watermark)
    assert isinstance(removal, Removal)
    assert log.segments[0].base_offset == log.log_start_offset == base
    directory = bench.broker.logs.directories[0]
    assert bench.broker.logs.take_checkpoints(directory).log_starts == {("a", 0): base}
    removal.run()
    log.finish_removal(removal)
    assert bench.broker.logs.take_checkpoints(directory).log_starts == {}


@scenario(run)
async def test_readers_go_on_while_compaction_changes_names(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic(
        "a", cleanup_policy="compact", min_cleanable_dirty_ratio="0.1", **SMALL_SEGMENTS
    )
    log = fill(bench, partition, 30)
    segments = log.segments

    async def read_all() -> None:
        while log.removals or log.segments is segments:
            for offset in range(30):
                found = partition.read(
                    Offset(offset), bytes_max=1000, bound=Offset(30), at_least_one=True
                )
                assert found is not None
                assert len(found.file.pread(61, found.position)) == 61
                log.offset_for_timestamp(bench.broker.clock.wall_ms())
            await asyncio.sleep(0.00005 if log.segments is not segments else 0.01)

    readers = asyncio.ensure_future(read_all())
    await asyncio.sleep(60)
    assert log.segments is not segments
    await readers


@scenario(run)
async def test_deleted_records_are_in_the_checkpoint_soon(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, 2)
    partition.advance_log_start(Offset(1))
    await asyncio.sleep(61)
    starts = read_checkpoint(bench.life.disk, f"/data/{LOG_STARTS}")
    assert starts == {TopicPartition("a", 0): 1}
