"""Selects the folder of the replica after a crash during a move."""

from uuid import UUID

import pytest

from lograft.broker.logs.interrupted_moves import (
    PAST_DIRECTORIES_MAX,
    Opened,
    choose,
    interrupted_move_error,
    past_directories,
)
from lograft.broker.logs.log_loading import FoundLog
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.model.errors import LograftError
from lograft.model.types import Offset, TopicPartition
from lograft.storage.log_dirs import (
    directory_name,
    read_moving_to,
    write_moved_from,
    write_moving_to,
)
from lograft.storage.types import RecoveryPlan
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, StandInController, batch_of, new_machine, run

DIRS = "/one,/two"
A = TopicPartition("a", 0)


def opened(bench: Bench, number: int, moving_to: UUID | None = None) -> Opened:
    directory: LogDirectory = bench.broker.logs.directories[number]
    path = f"{directory.path}/{directory_name(A)}"
    found = FoundLog(A, None, path, RecoveryPlan(clean=True), Offset(0), (), moving_to)
    return Opened(LograftError("not opened"), directory, found)


@scenario(run, log_dirs=DIRS)
async def test_the_source_of_a_move_that_arrived_is_left_behind(bench: Bench, /) -> None:
    goal = bench.broker.logs.directories[1].directory_id
    source, copy = opened(bench, 0, goal), opened(bench, 1)
    for order in ([source, copy], [copy, source]):
        choice = choose(order)
        assert choice.chosen is copy
        assert choice.left_behind == (source,)
        assert interrupted_move_error(choice.chosen, sees_all=False) is None
    choice = choose([source])
    assert choice.chosen is source
    assert interrupted_move_error(source, sees_all=True) is None
    error = interrupted_move_error(source, sees_all=False)
    assert error is not None
    assert "/one/a-0" in str(error)
    # Without information about which one is valid, the first is used.
    choice = choose([opened(bench, 0), copy])
    assert choice.chosen.directory.path == "/one"
    assert choice.others == (copy,)


@pytest.mark.parametrize("has_arrived", [False, True])
def test_a_start_ends_the_move(has_arrived: bool) -> None:
    machine, controller = new_machine(), StandInController()

    async def first(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        batch = memoryview(bytearray(batch_of(b"0")))
        partition.append(batch, now_ms=bench.broker.clock.wall_ms())

    bench = run(first, machine=machine, controller=controller, log_dirs=DIRS)
    source = bench.partition("a").directory
    assert source is not None
    (target,) = [each for each in bench.broker.logs.directories if each is not source]
    machine.exit()

    # The state after a crash in the swap.
    life = machine.boot()
    disk = life.disk
    write_moving_to(disk, f"{source.path}/a-0", target.directory_id)
    if has_arrived:
        disk.make_dir(f"{target.path}/a-0")
        for name in disk.list_dir(f"{source.path}/a-0"):
            if name != "lograft.moving-to":
                data = disk.read(f"{source.path}/a-0/{name}")
                disk.open(f"{target.path}/a-0/{name}", create=True).append(data)
        write_moved_from(disk, f"{target.path}/a-0", [source.directory_id])
    machine.exit()

    async def second(bench: Bench) -> None:
        partition = bench.partition("a")
        await partition.wait_open(timeout_ms=10_000)
        assert partition.directory is not None
        assert partition.log is not None
        assert partition.log.end_offset == 1
        where = target if has_arrived else source
        assert partition.directory.path == where.path
        assert read_moving_to(bench.life.disk, f"{where.path}/a-0") is None
        past = (source.directory_id,) if has_arrived else ()
        assert partition.past_directories == past
        other = source if has_arrived else target
        assert "a-0" not in bench.life.disk.list_dir(other.path)

    run(second, machine=machine, controller=controller, log_dirs=DIRS)


def test_past_directories_are_each_named_once_and_bounded() -> None:
    first, second, third = (UUID(int=number) for number in (1, 2, 3))
    assert past_directories((), first, second) == (first,)
    assert past_directories((first,), second, third) == (first, second)
    assert past_directories((first, second), third, first) == (second, third)
    many = tuple(UUID(int=number) for number in range(10, 500))
    assert len(past_directories(many, first, second)) == PAST_DIRECTORIES_MAX
