import errno
from random import Random
from typing import Literal

import pytest

from lograft.model.seams import Disk, File
from lograft.simulation.disk import DiskFault, SimulatedDisk
from lograft.simulation.errors import FenceBroken, SimulatedCrash
from lograft.simulation.platter import SECTOR_BYTES, Platter

SEEDS = range(200)


def new_disk(seed: int = 0, platter: Platter | None = None) -> SimulatedDisk:
    return SimulatedDisk(platter or Platter(), random=Random(seed))


def after_power_loss(disk: SimulatedDisk, seed: int) -> SimulatedDisk:
    disk.kill()
    disk.platter.on_power_lost(Random(seed))
    return new_disk(platter=disk.platter)


def test_disk_implements_the_seam() -> None:
    disk: Disk = new_disk()
    disk.make_dir("/data/a")
    file: File = disk.open("/data/a/log", create=True)
    assert file.append(b"one", memoryview(b"two")) == 0
    assert file.append(b"three") == 6
    assert (file.size, file.path) == (11, "/data/a/log")
    file.pwrite(b"ONE", 0)
    assert file.pread(100, 0) == b"ONEtwothree"
    assert file.pread(3, 9) == b"ee"
    file.truncate(4)
    assert disk.read("/data/a/log") == b"ONEt"
    assert disk.list_dir("/data") == ["a"]
    assert disk.is_dir("/data/a")
    assert not disk.is_dir("/data/a/log")
    disk.rename("/data/a/log", "/data/b")
    assert disk.list_dir("/data") == ["a", "b"]
    assert file.pread(4, 0) == b"ONEt"
    disk.unlink("/data/b")
    assert not disk.exists("/data/b")
    assert disk.usage("/data").free_bytes == disk.usage("/data").total_bytes


def test_errors_match_those_of_an_operating_system() -> None:
    disk = new_disk()
    with pytest.raises(FileNotFoundError):
        disk.open("/nowhere")
    with pytest.raises(FileNotFoundError):
        disk.open("/no/folder/file", create=True)
    with pytest.raises(FileNotFoundError):
        disk.rename("/a", "/b")
    disk.make_dir("/folder")
    with pytest.raises(IsADirectoryError):
        disk.open("/folder")
    disk.open("/file", create=True)
    with pytest.raises(NotADirectoryError):
        disk.list_dir("/file")
    disk.open("/folder/inside", create=True)
    disk.make_dir("/other")
    with pytest.raises(OSError, match="not empty"):
        disk.rename("/other", "/folder")
    with pytest.raises(FenceBroken):
        disk.open("/file").fileno()


def test_unlinked_file_stays_readable_while_open() -> None:
    disk = new_disk()
    file = disk.open("/f", create=True)
    file.append(b"still here")
    disk.remove_tree("/f")
    assert file.pread(10, 0) == b"still here"


def durable_file(seed: int) -> tuple[SimulatedDisk, File]:
    disk = new_disk(seed)
    disk.make_dir("/d")
    file = disk.open("/d/f", create=True)
    disk.fsync_dir("/d")
    disk.fsync_dir("/")
    return disk, file


def test_fsynced_bytes_survive_every_power_loss() -> None:
    for seed in SEEDS:
        disk, file = durable_file(seed)
        file.append(b"x" * 700)
        file.fsync()
        file.append(b"y" * 700)
        assert after_power_loss(disk, seed).read("/d/f")[:700] == b"x" * 700


def test_any_subset_of_unsynced_writes_may_survive() -> None:
    seen = set()
    for seed in SEEDS:
        disk, file = durable_file(seed)
        for letter in (b"a", b"b", b"c"):
            file.append(letter * SECTOR_BYTES)
        content = after_power_loss(disk, seed).read("/d/f")
        seen.add("".join(letter for letter in "abc" if letter.encode() * SECTOR_BYTES in content))
    assert {"", "a", "ab", "abc", "b", "c", "ac", "bc"} <= seen


def test_power_loss_may_tear_writes_and_leave_stale_bytes() -> None:
    partial = stale = 0
    for seed in SEEDS:
        disk, file = durable_file(seed)
        file.append(b"\x01" * 100)
        file.fsync()
        file.append(b"\x02" * 2000)
        content = after_power_loss(disk, seed).read("/d/f")
        assert content[:100] == b"\x01" * 100
        rest = content[100:]
        partial += 0 < rest.count(2) < 2000
        stale += rest.strip(b"\x02") != b""
    assert partial > 10
    assert stale > 10


def test_new_file_needs_an_fsync_of_its_folder() -> None:
    lost = 0
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_dir("/d")
        disk.fsync_dir("/")
        file = disk.open("/d/f", create=True)
        file.append(b"abc")
        file.fsync()
        survivor = after_power_loss(disk, seed)
        lost += not survivor.exists("/d/f")
        assert not survivor.exists("/d/f") or survivor.read("/d/f") == b"abc"
    assert 20 < lost < 180


def test_rename_is_atomic_and_durable_after_fsync_dir() -> None:
    seen = set()
    for seed in SEEDS:
        disk, file = durable_file(seed)
        file.append(b"old")
        file.fsync()
        new = disk.open("/d/f.tmp", create=True)
        new.append(b"new")
        new.fsync()
        disk.rename("/d/f.tmp", "/d/f")
        if seed % 2:
            disk.fsync_dir("/d")
        content = after_power_loss(disk, seed).read("/d/f")
        seen.add(content)
        assert seed % 2 == 0 or content == b"new"
    assert seen == {b"old", b"new"}


def test_rename_without_fsync_of_the_data_can_leave_an_empty_file() -> None:
    contents = set()
    for seed in SEEDS:
        disk, file = durable_file(seed)
        file.append(b"old")
        file.fsync()
        disk.open("/d/f.tmp", create=True).append(b"new")
        disk.rename("/d/f.tmp", "/d/f")
        contents.add(after_power_loss(disk, seed).read("/d/f"))
    assert {b"old", b"new", b""} <= contents


def test_move_between_folders_is_atomic() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        for path in ("/a", "/b", "/a/x"):
            disk.make_dir(path)
        disk.fsync_dir("/")
        disk.fsync_dir("/a")
        disk.rename("/a/x", "/b/y")
        survivor = after_power_loss(disk, seed)
        assert survivor.exists("/a/x") != survivor.exists("/b/y")


def test_kill_keeps_the_page_cache_and_releases_the_lock() -> None:
    disk, file = durable_file(1)
    file.append(b"cached")
    disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        new_disk(platter=disk.platter).lock("/d/.lock")
    disk.kill()
    disk.platter.on_process_killed(Random(1))
    next_life = new_disk(platter=disk.platter)
    assert next_life.read("/d/f") == b"cached"
    lock = next_life.lock("/d/.lock")
    lock.release()
    next_life.lock("/d/.lock")


def test_crash_happens_at_the_nth_modification_and_every_later_call_raises() -> None:
    sizes = set()
    for seed in range(50):
        disk, file = durable_file(seed)
        crashes: list[str] = []
        disk.crash_after(3, lambda crashes=crashes: crashes.append("now"))  # type: ignore[misc]
        file.append(b"1")
        file.fsync()
        with pytest.raises(SimulatedCrash):
            file.append(b"2345")
        assert crashes == ["now"]
        with pytest.raises(SimulatedCrash):
            file.pread(1, 0)
        with pytest.raises(SimulatedCrash):
            disk.exists("/d")
        with pytest.raises(SimulatedCrash):
            file.fsync()
        sizes.add(len(new_disk(platter=disk.platter).read("/d/f")))
    assert sizes == {1, 2, 3, 4, 5}


def test_exception_handlers_do_not_catch_a_crash() -> None:
    disk, file = durable_file(1)
    disk.crash_after(1)
    handled = False

    def careless() -> None:
        nonlocal handled
        try:
            file.fsync()
        except Exception:
            handled = True

    with pytest.raises(SimulatedCrash):
        careless()
    assert not handled


def test_failed_fsync_drops_the_pages_and_the_next_one_succeeds() -> None:
    for seed in range(50):
        disk, file = durable_file(seed)
        file.append(b"sure")
        file.fsync()
        file.append(b"gone")
        disk.faults.append(DiskFault(operation="fsync", path_part="/d/f"))
        with pytest.raises(OSError, match="Input/output error"):
            file.fsync()
        file.fsync()
        assert file.pread(8, 0) == b"suregone"
        assert after_power_loss(disk, seed).read("/d/f") == b"sure"


@pytest.mark.parametrize("operation", ["read", "write", "truncate", "create", "rename", "unlink"])
def test_fault_applies_to_the_selected_operation(operation: str) -> None:
    disk, file = durable_file(1)
    fault = DiskFault(operation=operation, skip=1, error=errno.EROFS)  # type: ignore[arg-type]
    disk.faults.append(fault)

    def all_kinds(suffix: str) -> None:
        file.append(b"123")
        file.pread(1, 0)
        file.truncate(1)
        disk.open(f"/d/{suffix}", create=True)
        disk.rename(f"/d/{suffix}", f"/d/{suffix}2")
        disk.unlink(f"/d/{suffix}2")

    all_kinds("a")
    with pytest.raises(OSError, match="Read-only") as raised:
        all_kinds("b")
    assert raised.value.errno == errno.EROFS
    file.append(b"4")


def test_lost_and_misdirected_writes_appear_after_a_power_loss() -> None:
    effects: tuple[Literal["lose", "misdirect"], ...] = ("lose", "misdirect")
    for effect in effects:
        disk, file = durable_file(5)
        file.append(b"\x01" * 1000)
        file.fsync()
        disk.faults.append(DiskFault(operation="write", effect=effect))
        file.append(b"\x02" * 10)
        file.fsync()
        assert file.pread(1010, 0) == b"\x01" * 1000 + b"\x02" * 10
        content = after_power_loss(disk, 1).read("/d/f")
        assert content != b"\x01" * 1000 + b"\x02" * 10
        assert (2 in content) == (effect == "misdirect")


def test_full_disk_writes_the_part_that_fits() -> None:
    platter = Platter(capacity_bytes=100)
    disk = new_disk(platter=platter)
    file = disk.open("/f", create=True)
    file.append(b"x" * 90)
    with pytest.raises(OSError, match="No space") as raised:
        file.append(b"y" * 20)
    assert raised.value.errno == errno.ENOSPC
    assert file.size == 90
    assert len(disk.read("/f")) == 100
    file.truncate(50)
    file.append(b"z" * 50)
    disk.unlink("/f")
    assert disk.usage("/").free_bytes == 100


def test_flipped_bit_is_permanent() -> None:
    disk, file = durable_file(1)
    file.append(b"\x00\x00")
    file.fsync()
    disk.platter.flip_bit("/d/f", 1, 3)
    assert file.pread(2, 0) == b"\x00\x08"
    assert after_power_loss(disk, 1).read("/d/f") == b"\x00\x08"


def test_operations_take_virtual_time() -> None:
    disk, file = durable_file(1)
    disk.take_spent_ns()
    file.fsync()
    assert disk.take_spent_ns() >= 200_000
    assert disk.take_spent_ns() == 0


def test_inspection_reads_take_no_time_and_have_no_faults() -> None:
    disk, file = durable_file(1)
    file.append(b"bytes")
    disk.faults.append(DiskFault(operation="read", error=errno.EIO))
    disk.take_spent_ns()
    disk.is_inspected = True
    assert file.pread(1, 0)
    assert disk.take_spent_ns() == 0
    disk.kill()
    assert file.pread(1, 0), "the final inspection of a process that has just died"


def test_power_loss_depends_only_on_the_seed() -> None:
    def surviving_files(seed: int) -> list[tuple[str, bytes]]:
        disk, file = durable_file(seed)
        for number in range(30):
            file.append(bytes([number]) * 300)
            disk.open(f"/d/{number}", create=True).append(b"abc")
        disk.platter.on_power_lost(Random(seed))
        return [(path, bytes(node.live)) for path, node in disk.platter.files()]

    assert [surviving_files(seed) for seed in range(20)] == [
        surviving_files(seed) for seed in range(20)
    ]
