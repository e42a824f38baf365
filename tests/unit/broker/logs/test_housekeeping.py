import asyncio

from lograft.broker.partitions.partition import Partition
from lograft.model.types import Offset
from lograft.simulation.disk import DiskFault
from lograft.storage.log_dirs import read_checkpoint
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run


def fill(bench: Bench, partition: Partition, count: int, **settings: int) -> None:
    now_ms = bench.broker.clock.wall_ms()
    for number in range(count):
        batch = batch_of(b"x" * 100, timestamp=now_ms, **settings)
        settings = {**settings, "base_sequence": number + 1} if settings else {}
        partition.append(memoryview(bytearray(batch)), now_ms=now_ms)


def log_files(bench: Bench, folder: str) -> list[str]:
    return [name for name in bench.life.disk.list_dir(folder) if ".log" in name]


@scenario(run)
async def test_retention_by_size_and_the_removal_of_files(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic(
        "a",
        internal_segment_bytes="400",
        retention_bytes="400",
        file_delete_delay_ms="30000",
    )
    fill(bench, partition, 12)
    assert partition.log is not None
    assert len(log_files(bench, "/data/a-0")) >= 5
    await asyncio.sleep(310)
    assert partition.log.log_start_offset > 0
    left = log_files(bench, "/data/a-0")
    assert any(name.endswith(".deleted") for name in left)
    await asyncio.sleep(45)
    assert not any(name.endswith(".deleted") for name in log_files(bench, "/data/a-0"))


@scenario(run)
async def test_retention_by_time_empties_even_an_idle_log(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", retention_ms="100000")
    fill(bench, partition, 3)
    await asyncio.sleep(700)
    assert partition.log is not None
    assert partition.log.log_start_offset == partition.high_watermark == 3


@scenario(run)
async def test_the_recovery_point_follows_the_last_flush_of_a_dir_that_then_rests(
    bench: Bench, /
) -> None:
    """Otherwise the next unclean start would validate records that are known to be valid."""
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, 1)
    path = "/data/recovery-point-offset-checkpoint"
    await asyncio.sleep(70)
    assert read_checkpoint(bench.life.disk, path)[partition.topic_partition] == 0
    assert partition.directory is not None
    partition.directory.flusher.request(partition)
    await asyncio.sleep(70)
    assert read_checkpoint(bench.life.disk, path)[partition.topic_partition] == 1
    operations = bench.life.disk.operations
    await asyncio.sleep(200)
    assert bench.life.disk.operations == operations, "written once, then left alone"


@scenario(run, producer_id_expiration_ms="600000")
async def test_producers_are_forgotten(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, 1, producer_id=5, producer_epoch=0, base_sequence=0)
    assert partition.log is not None
    assert len(partition.log.producers) == 1
    await asyncio.sleep(1300)
    assert len(partition.log.producers) == 0


@scenario(run, log_dirs="/one,/two", metadata_log_dir="/two")
async def test_a_disk_that_fails_meanwhile_takes_its_dir_offline(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, 1)
    bench.life.disk.faults.append(DiskFault(operation="fsync", path_part="replication-offset"))
    await asyncio.sleep(10)
    assert partition.offline
    await asyncio.sleep(1000)


@scenario(run)
async def test_a_thousand_idle_partitions_do_nothing(bench: Bench, /) -> None:
    await bench.create_topic("a", partitions=1000)
    await asyncio.sleep(400)
    operations = bench.life.disk.operations
    steps = bench.life.machine.loop.steps
    await asyncio.sleep(600)
    assert bench.life.disk.operations == operations
    # One tick per second, and regular turns for the loop during retention.
    assert bench.life.machine.loop.steps - steps < 3 * 600


def test_log_start_survives_a_kill() -> None:
    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        fill(bench, partition, 5)
        partition.advance_log_start(Offset(4))
        await asyncio.sleep(70)

    bench = run(first, stop=False)
    bench.life.machine.kill()

    async def second(bench: Bench) -> None:
        log = bench.partition("a").log
        assert log is not None
        assert log.log_start_offset == 4

    run(second, machine=bench.life.machine, controller=bench.controller)
