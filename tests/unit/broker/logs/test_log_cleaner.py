import asyncio

from lograft.broker.logs.log_cleaner import GIVEN_UP, MOVED_BYTES, PASSES
from lograft.broker.partitions.partition import Partition
from lograft.metadata.types import ResourceType
from lograft.model.metrics import value_of
from lograft.model.seams import FileSlice
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import Offset
from lograft.simulation.disk import DiskFault
from lograft.simulation.platter import FileNode
from lograft.storage.log_dirs import CLEANER_OFFSETS, read_checkpoint
from lograft.wire.batches import Record, build_batch, iterate_headers, read_records
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async
from tests.unit.broker.bench import Bench, make_config, new_machine, run

COMPACTED = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "300",
    "min_cleanable_dirty_ratio": "0.1",
    "file_delete_delay_ms": "1000",
}


def write(bench: Bench, partition: Partition, key: bytes, value: bytes) -> None:
    now_ms = bench.broker.clock.wall_ms()
    batch = build_batch([Record(0, now_ms, key, value)])
    partition.append(memoryview(bytearray(batch)), now_ms=now_ms)


def read(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    found: list[tuple[int, bytes | None, bytes | None]] = []
    offset = Offset(0)
    while True:
        part: FileSlice | None = partition.read(
            offset, bytes_max=1 << 20, bound=partition.high_watermark, at_least_one=True
        )
        if part is None:
            return found
        data = part.file.pread(part.size, part.position)
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_bytes]
            for record in read_records(batch, bytes_max=1 << 20):
                found.append((record.offset, record.key, record.value))
            offset = Offset(header.last_offset + 1)


def test_the_last_value_of_every_key_stays() -> None:
    async def scenario(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a", **COMPACTED)  # type: ignore[arg-type]
        for number in range(40):
            write(bench, partition, b"key%d" % (number % 3), b"value%d" % number)
        await asyncio.sleep(40)
        kept = read(partition)
        assert len(kept) < 10
        assert kept[-1] == (39, b"key0", b"value39")
        assert {key for _, key, _ in kept} == {b"key0", b"key1", b"key2"}
        assert partition.high_watermark == 40
        assert value_of(bench.broker, PASSES) >= 1
        offsets = read_checkpoint(bench.life.disk, f"/data/{CLEANER_OFFSETS}")
        assert offsets["a", 0] > 30  # type: ignore[index]

    bench = run(scenario)
    bench.life.machine.exit()

    async def again(bench: Bench) -> None:
        assert bench.broker.logs.directories[0].cleaner_offsets
        assert read(bench.partition("a"))[-1] == (39, b"key0", b"value39")

    run(again, machine=bench.life.machine, controller=bench.controller)


@scenario(run)
async def test_other_topics_are_left_alone(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", internal_segment_bytes="300")
    for number in range(40):
        write(bench, partition, b"key", b"value%d" % number)
    await asyncio.sleep(100)
    assert len(read(partition)) == 40


@scenario(run)
async def test_a_topic_deleted_during_compaction_is_no_failure(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", **COMPACTED)  # type: ignore[arg-type]
    for number in range(40):
        write(bench, partition, b"key", b"value%d" % number)
    await asyncio.sleep(1)  # until the rolled segments are flushed
    cleaner = bench.broker._cleaner
    candidate = await cleaner.find_dirtiest()
    assert candidate is not None
    cleaning = asyncio.ensure_future(cleaner.clean(candidate))
    await asyncio.sleep(0)
    bench.broker._remove(partition)
    await cleaning
    await asyncio.sleep(100)
    assert not bench.broker.logs.directories[0].offline


@scenario(run, log_dirs="/one,/two", metadata_log_dir="/two")
async def test_a_disk_that_fails_during_compaction_goes_offline(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", **COMPACTED)  # type: ignore[arg-type]
    for number in range(40):
        write(bench, partition, b"key", b"value%d" % number)
    bench.life.disk.faults.append(DiskFault(operation="fsync", path_part=".cleaned"))
    await asyncio.sleep(40)
    assert partition.offline


@scenario(run, log_cleaner_backoff_ms="86400000")
async def test_a_shorter_backoff_holds_at_once(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", **COMPACTED)  # type: ignore[arg-type]
    for number in range(40):
        write(bench, partition, b"key", b"value%d" % number)
    await asyncio.sleep(3600)
    assert value_of(bench.broker, PASSES) == 0
    record = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name="1",
        name="log.cleaner.backoff.ms",
        value="100",
    )
    bench.controller.append((record,))
    await asyncio.sleep(5)
    assert value_of(bench.broker, PASSES) >= 1


@scenario(run)
async def test_compaction_keeps_below_its_limit_and_hears_of_a_new_one(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", **COMPACTED)  # type: ignore[arg-type]
    for number in range(400):
        write(bench, partition, b"key%d" % (number % 3), b"value%d" % number)
    logs = bench.broker.logs

    def limited(rate: str) -> BrokerConfig:
        return make_config(log_cleaner_io_max_bytes_per_second=rate)

    logs.config = limited("1000.0")

    def moved() -> int:
        return int(value_of(bench.broker, MOVED_BYTES))

    async with asyncio.timeout(60):
        await wait_until_async(moved)
    before = moved()
    await asyncio.sleep(10)
    # At most one batch above the limit at a time; reads are counted, too.
    assert 9_000 <= moved() - before <= 11_000
    assert value_of(bench.broker, PASSES) == 0
    logs.config = limited("0.0")
    await asyncio.sleep(3)
    before = moved()
    await asyncio.sleep(60)
    assert moved() == before
    logs.config = limited("1e300")
    await asyncio.sleep(5)
    assert value_of(bench.broker, PASSES) >= 1
    assert read(partition)[-1] == (399, b"key0", b"value399")


def test_a_damaged_log_is_no_longer_compacted() -> None:
    machine = new_machine()

    async def damage(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a", **COMPACTED)  # type: ignore[arg-type]
        for number in range(40):
            write(bench, partition, b"key", b"value%d" % number)
        node = machine.platter.find("/data/a-0/00000000000000000000.log")
        assert isinstance(node, FileNode)
        node.live[70] ^= 0xFF
        await asyncio.sleep(100)
        assert value_of(bench.broker, GIVEN_UP) == 1

    run(damage, machine=machine)
