"""Replicas that move between log dirs while they are written, and with any end of the process."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from lograft.broker.errors import PartitionNotYetOpen
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import Partition
from lograft.metadata.topics import delete_topics
from lograft.model.types import Offset, ReplicationMode
from lograft.simulation.disk import DiskFault
from lograft.simulation.machine import Machine
from lograft.storage.log import Log
from lograft.wire.batches import read_records
from lograft.wire.messages.delete_topics import DeleteTopicsRequest
from tests.support.scenarios import scenario
from tests.unit.broker.bench import (
    Bench,
    StandInController,
    batch_of,
    new_machine,
    run,
)

DIRS = "/one,/two"


def append(bench: Bench, partition: Partition, value: bytes, **settings: int) -> None:
    batch = memoryview(bytearray(batch_of(value, **settings)))
    partition.append(batch, now_ms=bench.broker.clock.wall_ms())


def log_of(partition: Partition) -> Log:
    assert partition.log is not None
    return partition.log


def values_of(log: Log) -> list[bytes | None]:
    """From the log start offset that consumers see."""
    values: list[bytes | None] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, bytes_max=1 << 20)) is not None:
        data = memoryview(piece.file.pread(piece.size, piece.position))
        while data:
            size = int.from_bytes(data[8:12], "big") + 12
            for record in read_records(data[:size], bytes_max=1 << 20):
                if record.offset >= offset:
                    values.append(record.value)
                    offset = Offset(record.offset + 1)
            data = data[size:]
    return values


def other_dir(bench: Bench, partition: Partition) -> LogDirectory:
    (other,) = [each for each in bench.broker.logs.directories if each is not partition.directory]
    return other


async def moved(bench: Bench, partition: Partition) -> LogDirectory:
    target = other_dir(bench, partition)
    bench.broker.moves.move(partition, target)
    while partition in bench.broker.moves.moves:
        await asyncio.sleep(0.001)
    return target


@scenario(run, log_dirs=DIRS)
async def test_a_log_moves_while_it_is_written_and_comes_back(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", segment_bytes="1048576")
    log, count, waited = log_of(partition), 0, 0
    is_over = False

    async def write() -> None:
        nonlocal count, waited
        while not is_over:
            try:
                append(bench, partition, b"%d" % count * 500)
                count += 1
            except PartitionNotYetOpen:
                waited += 1
                await partition.wait_open(timeout_ms=10_000)
            await asyncio.sleep(0.0001)

    for number in range(3000):
        append(bench, partition, b"%d" % number * 500)
    count = 3000
    writer = asyncio.get_running_loop().create_task(write())
    for _ in range(2):
        source = partition.directory
        assert await moved(bench, partition) is partition.directory is not source
        assert log is partition.log, "whoever holds the log goes on with it"
        assert partition.directory is not None
        assert log.directory == f"{partition.directory.path}/a-0"
    is_over = True
    await writer
    assert waited, "writers wait while it changes places"
    assert values_of(log) == [b"%d" % number * 500 for number in range(count)]
    assert [each.log_count for each in bench.broker.logs.directories] in ([1, 0], [0, 1])


def test_its_start_its_epochs_and_its_producers_come_along() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        for number in range(4):
            append(
                bench,
                partition,
                b"%d" % number,
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
            )
        batch = memoryview(bytearray(batch_of(b"4", b"5", b"6")))
        partition.append(batch, now_ms=bench.broker.clock.wall_ms())
        # Inside of a batch.
        partition.advance_log_start(Offset(5))
        log = log_of(partition)
        await moved(bench, partition)
        assert log.log_start_offset == 5
        assert values_of(log) == [b"5", b"6"]
        assert len(log.producers) == 1

    bench = run(first, machine=machine, controller=controller, log_dirs=DIRS)
    before = log_of(bench.partition("a"))
    machine.exit()

    async def second(bench: Bench) -> None:
        log = log_of(bench.partition("a"))
        assert log.directory == before.directory
        assert log.log_start_offset == 5
        assert values_of(log) == [b"5", b"6"]
        assert log.epoch_end(0) == (0, 7)

    run(second, machine=machine, controller=controller, log_dirs=DIRS)


@scenario(run, log_dirs=DIRS)
async def test_a_log_that_is_cut_while_it_moves(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    for number in range(300):
        append(bench, partition, b"%d" % number)
    target = other_dir(bench, partition)
    bench.broker.moves.move(partition, target)
    await asyncio.sleep(0.002)
    await bench.broker.logs.truncate(partition, Offset(100))
    append(bench, partition, b"again")
    while partition in bench.broker.moves.moves:
        await asyncio.sleep(0.001)
    assert partition.directory is target
    expected = [b"%d" % number for number in range(100)] + [b"again"]
    assert values_of(log_of(partition)) == expected


@pytest.mark.parametrize("end", [Machine.kill, Machine.lose_power], ids=["kill", "power loss"])
@pytest.mark.parametrize("moment", range(0, 60, 2))
def test_whatever_ends_the_process_one_of_them_is_whole(
    end: Callable[[Machine], None], moment: int
) -> None:
    """An incomplete move starts again."""
    machine, controller = new_machine(moment), StandInController()

    async def first(bench: Bench) -> None:
        bench.life.disk.fsync_dir("/")  # the log dirs existed long before
        (partition,) = await bench.create_topic("a", flush_messages="1")
        for number in range(20):
            append(bench, partition, b"%d" % number)
        await partition.wait_flushed(Offset(20), timeout_ms=10_000)
        bench.broker.moves.move(partition, other_dir(bench, partition))
        await asyncio.sleep(moment / 2000)

    bench = run(first, machine=machine, controller=controller, stop=False, log_dirs=DIRS)
    start, target = bench.partition("a").directory, other_dir(bench, bench.partition("a")).path
    was_there = start is not None and bench.partition("a") not in bench.broker.moves.moves
    end(machine)

    async def second(bench: Bench) -> None:
        partition = bench.partition("a")
        await partition.wait_open(timeout_ms=10_000)
        while bench.broker.moves.moves:
            await asyncio.sleep(0.01)
        log = log_of(partition)
        assert values_of(log) == [b"%d" % number for number in range(20)]
        append(bench, partition, b"more")
        if not was_there and log.directory.startswith(target):
            assert partition.directory is not None
            assert partition.directory.path == target

    run(second, machine=machine, controller=controller, log_dirs=DIRS)


@scenario(run, log_dirs=DIRS)
async def test_a_disk_that_fails_keeps_the_log_where_it_is(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    append(bench, partition, b"0")
    source, target = partition.directory, other_dir(bench, partition)
    bench.life.disk.faults.append(DiskFault(operation="fsync", path_part=target.path))
    await moved(bench, partition)
    assert target.offline
    assert partition.directory is source
    append(bench, partition, b"1")
    assert values_of(log_of(partition)) == [b"0", b"1"]


@scenario(run, log_dirs=DIRS)
async def test_a_move_is_taken_back(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    for number in range(100):
        append(bench, partition, b"%d" % number)
    source, target = partition.directory, other_dir(bench, partition)
    assert source is not None
    bench.broker.moves.move(partition, target)
    await asyncio.sleep(0.0015)
    bench.broker.moves.move(partition, source)
    assert not bench.broker.moves.moves
    await asyncio.sleep(1)
    assert partition.directory is source
    futures = [path for _, where, path in bench.broker.logs.doomed if where is target]
    assert all(path.endswith("-future") for path in futures)


@scenario(run, log_dirs=DIRS)
async def test_a_move_waits_for_the_end_of_a_switch_of_modes(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    source, target = partition.directory, other_dir(bench, partition)
    before = partition.assignment
    partition.assignment = before._replace(mode=ReplicationMode.ENTERING)
    bench.broker.moves.move(partition, target)
    await asyncio.sleep(1)
    assert partition.directory is source
    partition.assignment = before
    while partition in bench.broker.moves.moves:
        await asyncio.sleep(0.001)
    assert partition.directory is target


@scenario(run, log_dirs=DIRS)
async def test_a_topic_that_is_deleted_ends_its_move(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    for number in range(100):
        append(bench, partition, b"%d" % number)
    bench.broker.moves.move(partition, other_dir(bench, partition))
    await asyncio.sleep(0.001)
    request = DeleteTopicsRequest(topic_names=["a"])
    decide = partial(delete_topics, request=request, config=bench.config)
    await bench.controller.submit(decide)
    while bench.broker.moves.moves:
        await asyncio.sleep(0.001)
    await asyncio.sleep(70)
    for path in ("/one", "/two"):
        left = [name for name in bench.life.disk.list_dir(path) if name.startswith("a-")]
        assert left == [], "copies go too"
