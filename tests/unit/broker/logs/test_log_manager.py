import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lograft.broker.errors import PartitionOffline
from lograft.broker.logs.log_manager import DIR_FAILURES
from lograft.broker.partitions.partition import Partition
from lograft.metadata.topics import delete_topics
from lograft.model.errors import DiskFailed
from lograft.model.metrics import value_of
from lograft.model.types import Offset, TopicPartition
from lograft.simulation.disk import DiskFault
from lograft.simulation.platter import FileNode
from lograft.storage.log_dirs import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
    read_partition_metadata,
)
from lograft.wire.messages.delete_topics import DeleteTopicsRequest
from tests.support.scenarios import scenario
from tests.unit.broker.bench import (
    Bench,
    StandInController,
    batch_of,
    make_config,
    new_machine,
    run,
)


def fill(bench: Bench, partition: Partition, count: int = 1) -> None:
    for number in range(count):
        batch = memoryview(bytearray(batch_of(b"value %d" % number)))
        partition.append(batch, now_ms=bench.broker.clock.wall_ms())


async def delete(bench: Bench, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name])
    await bench.controller.submit(lambda image: delete_topics(image, request, config=bench.config))


@scenario(run, log_dirs="/one,/two,/three")
async def test_new_logs_go_where_the_fewest_are(bench: Bench, /) -> None:
    partitions = await bench.create_topic("a", partitions=9)
    counts = [directory.log_count for directory in bench.broker.logs.directories]
    assert counts == [3, 3, 3]
    for partition in partitions:
        assert partition.log is not None
        folder = partition.log.directory
        assert read_partition_metadata(bench.life.disk, folder) == partition.topic_id


@scenario(run, log_dirs="/one,/two", cordoned_log_dirs="/one")
async def test_a_cordoned_dir_gets_no_new_logs(bench: Bench, /) -> None:
    await bench.create_topic("a", partitions=4)
    assert [d.log_count for d in bench.broker.logs.directories] == [0, 4]


def test_logs_are_found_again_after_a_clean_stop() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        for number, partition in enumerate(await bench.create_topic("a", partitions=3)):
            fill(bench, partition, number + 1)
        bench.partition("a", 2).advance_log_start(Offset(2))

    run(first, machine=machine, controller=controller, log_dirs="/one,/two")
    assert machine.life is not None
    disk = machine.life.disk
    for path in ("/one", "/two"):
        assert disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
    points = {
        **read_checkpoint(disk, f"/one/{RECOVERY_POINTS}"),
        **read_checkpoint(disk, f"/two/{RECOVERY_POINTS}"),
    }
    assert sorted(points.values()) == [1, 2, 3]
    machine.exit()

    async def second(bench: Bench) -> None:
        assert not bench.life.disk.exists(f"/one/{CLEAN_SHUTDOWN}")
        ends = [bench.partition("a", index).high_watermark for index in range(3)]
        assert ends == [1, 2, 3]
        log = bench.partition("a", 2).log
        assert log is not None
        assert log.log_start_offset == 2
        assert [d.log_count for d in bench.broker.logs.directories] == [2, 1]
        assert bench.previous_epoch >= 0

    run(second, machine=machine, controller=controller, log_dirs="/one,/two")


def test_logs_are_recovered_after_a_kill() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        fill(bench, partition, 5)

    run(first, machine=machine, controller=controller, stop=False)
    machine.kill()

    async def second(bench: Bench) -> None:
        assert bench.partition("a").high_watermark == 5

    run(second, machine=machine, controller=controller)


async def stay(bench: Bench) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, 5)


async def fail_a_write(bench: Bench) -> None:
    await stay(bench)
    bench.life.disk.faults.append(DiskFault(operation="write", path_part="a-0"))
    with pytest.raises(DiskFailed):
        fill(bench, bench.partition("a"))
    assert bench.broker.logs.online != bench.broker.logs.directories


@pytest.mark.parametrize(
    ("life", "end", "is_intact"),
    [
        (stay, "kill", True),
        (stay, "power", False),
        (fail_a_write, "kill", False),
        (fail_a_write, "stop", False),
        (stay, "stop", True),
    ],
)
def test_a_kill_costs_nothing_a_power_loss_and_a_failed_disk_do(
    life: Callable[[Bench], Coroutine[Any, Any, None]], end: str, is_intact: bool
) -> None:
    machine, controller = new_machine(), StandInController()
    dirs = "/one,/two"
    run(life, machine=machine, controller=controller, log_dirs=dirs, stop=end == "stop")
    epoch = controller.image.brokers[1].epoch
    {"kill": machine.kill, "power": machine.lose_power, "stop": machine.exit}[end]()

    async def look(bench: Bench) -> None:
        assert bench.previous_epoch == (epoch if is_intact else -1)

    # Again: an earlier loss is remembered, and does not affect the next start.
    run(look, machine=machine, controller=controller, log_dirs=dirs, stop=False)
    epoch, is_intact = controller.image.brokers[1].epoch, True
    machine.kill()
    run(look, machine=machine, controller=controller, log_dirs=dirs)


def test_a_life_that_ended_before_its_logs_were_open_names_an_older_one() -> None:
    machine, controller = new_machine(), StandInController()
    run(stay, machine=machine, controller=controller, stop=False)
    served = controller.image.brokers[1].epoch
    machine.kill()
    life = machine.boot()
    bench = Bench(life, make_config(), controller)
    request = bench._registration()
    machine.loop.run_until_complete(life.run(controller.register_broker(request), name="registers"))
    registered = controller.image.brokers[1].epoch
    machine.kill()

    async def look(bench: Bench) -> None:
        assert bench.previous_epoch == served
        assert bench.previous_epoch < registered

    run(look, machine=machine, controller=controller)


@scenario(run)
async def test_a_deleted_log_is_renamed_then_removed(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", file_delete_delay_ms="60000")
    fill(bench, partition)
    reading = partition.read(Offset(0), bytes_max=1000, bound=Offset(1), at_least_one=True)
    assert reading is not None
    await delete(bench, "a")
    await asyncio.sleep(1)
    (folder,) = [name for name in bench.life.disk.list_dir("/data") if name.startswith("a-0")]
    assert folder.endswith("-delete")
    assert bench.broker.partitions.get("a", 0) is None
    # A client that was sent a part of the file still gets it.
    assert len(reading.file.pread(reading.size, reading.position)) == reading.size
    await asyncio.sleep(75)
    assert not [name for name in bench.life.disk.list_dir("/data") if name.startswith("a-0")]
    assert bench.broker.logs.directories[0].log_count == 0


def test_a_topic_made_again_under_its_old_name_starts_empty() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        (old,) = await bench.create_topic("a", flush_messages="1")
        fill(bench, old, 10)
        await old.wait_committed(Offset(10), timeout_ms=1000)
        await asyncio.sleep(70)  # the checkpoints now contain the old log
        assert read_checkpoint(bench.life.disk, f"/data/{RECOVERY_POINTS}") == {("a", 0): 10}
        await delete(bench, "a")
        (new,) = await bench.create_topic("a")
        assert new.topic_id != old.topic_id
        assert new.high_watermark == 0
        # Otherwise the new log would be considered damaged: shorter than its recovery point.
        assert read_checkpoint(bench.life.disk, f"/data/{RECOVERY_POINTS}") == {}
        fill(bench, new, 3)

    run(first, machine=machine, controller=controller, stop=False)
    machine.kill()

    async def second(bench: Bench) -> None:
        assert bench.partition("a").high_watermark == 3

    run(second, machine=machine, controller=controller)


@scenario(run)
async def test_a_topic_deleted_while_it_is_being_made(bench: Bench, /) -> None:
    for number in range(5):
        bench.begin_topic("a", partitions=3)
        await asyncio.sleep(number * 0.0003)
        await delete(bench, "a")
    await asyncio.sleep(1)
    live = [n for n in bench.life.disk.list_dir("/data") if n in ("a-0", "a-1", "a-2")]
    assert live == []
    assert bench.broker.logs.directories[0].log_count == 0


@scenario(run, log_dirs="/one,/two")
async def test_a_log_dir_that_somebody_deleted_is_offline_and_not_made_again(
    bench: Bench, /
) -> None:
    await bench.create_topic("a", partitions=2)
    bench.life.disk.remove_tree("/two")
    await bench.create_topic("b", partitions=4)
    first, second = bench.broker.logs.directories
    assert (first.offline, second.offline) == (False, True)
    assert value_of(bench.broker.logs, DIR_FAILURES) == 1
    assert not bench.life.disk.exists("/two")


def test_a_log_of_no_known_topic_is_set_aside_not_deleted() -> None:
    machine = new_machine()

    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        fill(bench, partition)

    run(first, machine=machine)
    machine.exit()

    async def second(bench: Bench) -> None:
        names = bench.life.disk.list_dir("/data")
        assert any(name.startswith("a-0.") and name.endswith("-stray") for name in names)
        (partition,) = await bench.create_topic("a")
        assert partition.high_watermark == 0
        await asyncio.sleep(200)
        assert any(name.endswith("-stray") for name in bench.life.disk.list_dir("/data"))

    run(second, machine=machine)  # a new cluster: its metadata is empty


def test_a_damaged_log_is_offline_alone_and_keeps_its_recovery_point() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        await bench.create_topic("good")
        (bad,) = await bench.create_topic("bad", flush_messages="1")
        fill(bench, bad, 5)
        await bad.wait_committed(Offset(5), timeout_ms=1000)
        await asyncio.sleep(70)

    run(first, machine=machine, controller=controller, stop=False)
    machine.kill()
    path = "/data/bad-0/00000000000000000000.log"
    node = machine.platter.find(path)
    assert isinstance(node, FileNode)
    for image in (node.live, node.durable):
        image[70] ^= 0xFF

    async def second(bench: Bench) -> None:
        with pytest.raises(PartitionOffline, match="damaged"):
            bench.partition("bad").leader_log()
        fill(bench, bench.partition("good"))
        await asyncio.sleep(70)
        points = read_checkpoint(bench.life.disk, f"/data/{RECOVERY_POINTS}")
        assert points[TopicPartition("bad", 0)] == 5

    for _ in range(2):
        run(second, machine=machine, controller=controller, stop=False)
        machine.kill()


def test_a_log_that_lost_its_files_is_not_taken_for_fsynced_any_more() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a", flush_messages="1")
        fill(bench, partition, 5)
        await partition.wait_committed(Offset(5), timeout_ms=1000)
        await asyncio.sleep(70)

    run(first, machine=machine, controller=controller, stop=False)
    machine.kill()
    disk = machine.boot().disk
    disk.unlink("/data/a-0/00000000000000000000.log")
    machine.kill()

    async def second(bench: Bench) -> None:
        assert bench.partition("a").high_watermark == 0
        points = read_checkpoint(bench.life.disk, f"/data/{RECOVERY_POINTS}")
        assert points[TopicPartition("a", 0)] == 0

    run(second, machine=machine, controller=controller)


def test_a_segment_that_retention_cannot_read_is_kept_and_the_node_goes_on() -> None:
    machine, controller = new_machine(), StandInController()
    folder = "/data/bad-0"

    async def first(bench: Bench) -> None:
        (bad,) = await bench.create_topic("bad", internal_segment_bytes="200")
        fill(bench, bad, 10)
        await bench.create_topic("good")

    run(first, machine=machine, controller=controller)
    machine.exit()
    for name, position in ((f"{0:020d}.log", 8), (f"{0:020d}.timeindex", 0)):
        node = machine.platter.find(f"{folder}/{name}")
        assert isinstance(node, FileNode)
        for image in (node.live, node.durable):
            image[position : position + 4] = bytes(4)

    async def second(bench: Bench) -> None:
        await asyncio.sleep(400)
        fill(bench, bench.partition("good"))
        assert bench.life.disk.exists(f"{folder}/{0:020d}.log")

    run(second, machine=machine, controller=controller)


@scenario(run)
async def test_checkpoints_are_written_only_where_something_happened(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, 4)
    partition.advance_log_start(Offset(2))
    await asyncio.sleep(7)
    disk = bench.life.disk
    assert read_checkpoint(disk, f"/data/{HIGH_WATERMARKS}") == {("a", 0): 4}
    assert not disk.exists(f"/data/{RECOVERY_POINTS}")
    await asyncio.sleep(60)
    assert read_checkpoint(disk, f"/data/{RECOVERY_POINTS}") == {("a", 0): 0}
    assert read_checkpoint(disk, f"/data/{LOG_STARTS}") == {("a", 0): 2}
    changes = disk.operations
    await asyncio.sleep(1000)
    assert disk.operations == changes


def test_an_idle_dir_that_cannot_be_read_at_start_is_offline() -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        await bench.create_topic("a", partitions=2)

    run(first, machine=machine, controller=controller, log_dirs="/one,/two")
    machine.exit()
    life = machine.boot()
    life.disk.faults.append(DiskFault(operation="read", path_part="/two", times=1000))

    async def second(bench: Bench) -> None:
        states = {p.index: bool(p.offline) for p in bench.broker.partitions}
        assert sorted(states.values()) == [False, True]

    run(second, machine=machine, controller=controller, log_dirs="/one,/two", life=life)


def test_a_stop_ends_the_deletions_that_were_under_way() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create_topic("a", partitions=100)
        await delete(bench, "a")

    bench = run(scenario)
    names = bench.life.disk.list_dir("/data")
    assert [name for name in names if name.startswith("a-") and not name.endswith("-delete")] == []
