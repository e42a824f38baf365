"""The real disk against the contract of the Disk seam."""

import gc
import os
from pathlib import Path

import pytest

from lograft.model.seams import Disk, File
from lograft.runtime import disk as disk_module
from lograft.runtime.disk import RealDisk, RealFile


@pytest.fixture
def disk() -> Disk:
    return RealDisk()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_append_returns_the_position_of_the_parts(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    assert file.append(b"abc") == 0
    assert file.append(b"de", bytearray(b"f"), memoryview(b"gh")) == 3
    assert file.append() == 8
    assert file.size == 8
    assert file.pread(100, 0) == b"abcdefgh"
    assert file.pread(3, 6) == b"gh"
    assert file.pread(3, 8) == b""


def test_reopened_file_appends_at_its_end(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a.log")
    disk.open(path, create=True).append(b"abc")
    file = disk.open(path)
    assert file.size == 3
    assert file.append(b"d") == 3
    assert disk.read(path) == b"abcd"


def test_more_parts_than_one_vector_write_accepts(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    parts = [bytes([number % 251]) * (number % 7) for number in range(3000)]
    file.append(*parts)
    assert file.pread(file.size, 0) == b"".join(parts)


def test_short_reads_and_writes_are_continued(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    pread, pwrite = os.pread, os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
        patch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, memoryview(data)[:3], at))
        # A vector write that ends in the middle of its second part.
        patch.setattr(os, "pwritev", lambda fd, parts, at: pwrite(fd, b"".join(parts)[:4], at))
        file.append(b"0123456789")
        file.append(b"ab", b"cdefgh", b"", b"ij")
        file.pwrite(b"ABCD", 10)
        assert file.pread(30, 0) == b"0123456789ABCDefghij"
    assert file.size == 20


def test_failed_append_does_not_change_the_size(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.append(b"abc")
    calls: list[int] = []
    pwrite = os.pwrite

    def full_disk(fd: int, data: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return pwrite(fd, memoryview(data)[:2], at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_disk)
        with pytest.raises(OSError, match="No space"):
            file.append(b"defgh")
    assert calls == [3, 5]
    assert file.size == 3
    assert file.append(b"X") == 3


def test_append_after_truncate(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.append(b"abcdef")
    file.truncate(2)
    assert (file.size, file.append(b"Z")) == (2, 2)
    assert file.pread(10, 0) == b"abZ"


def test_pwrite_beyond_the_end_grows_the_file(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.index"), create=True)
    file.pwrite(b"ab", 4)
    assert file.size == 6
    file.pwrite(b"x", 0)
    assert file.size == 6
    assert file.pread(6, 0) == b"x\0\0\0ab"


def test_descriptor_is_closed_with_the_last_reference(disk: Disk, tmp_path: Path) -> None:
    gc.collect()
    before = open_descriptors()
    file: File | None = disk.open(str(tmp_path / "a.log"), create=True)
    second = file
    assert open_descriptors() == before + 1
    file = None
    assert second is not None
    second.append(b"still open")
    assert open_descriptors() == before + 1
    second = None
    assert open_descriptors() == before


def test_descriptors_are_not_inherited(disk: Disk, tmp_path: Path) -> None:
    assert os.get_inheritable(disk.open(str(tmp_path / "a"), create=True).fileno()) is False


def test_read_only_file_can_be_read(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.log")
    disk.open(path, create=True).append(b"abc")
    real_open = os.open

    def read_only_disk(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(30, "Read-only file system", path)
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only_disk)
    file = disk.open(path)
    assert file.pread(3, 0) == b"abc"
    with pytest.raises(OSError):
        file.append(b"d")


def test_missing_files_raise(disk: Disk, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        disk.open(missing)
    with pytest.raises(FileNotFoundError):
        disk.unlink(missing)
    assert not disk.exists(missing)
    assert not disk.exists(missing + "/below")
    assert not disk.is_dir(missing)


def test_directories(disk: Disk, tmp_path: Path) -> None:
    folder = str(tmp_path / "x" / "y")
    disk.make_dir(folder)
    disk.make_dir(folder)
    disk.open(folder + "/b", create=True)
    disk.open(folder + "/a", create=True).append(b"1")
    assert disk.list_dir(folder) == ["a", "b"]
    disk.rename(folder + "/a", folder + "/b")
    assert disk.list_dir(folder) == ["b"]
    assert disk.read(folder + "/b") == b"1"
    assert disk.is_dir(folder)
    assert not disk.is_dir(folder + "/b")
    disk.fsync_dir(folder)
    assert disk.modified_ms(folder + "/b") > 1_500_000_000_000
    disk.remove_tree(str(tmp_path / "x"))
    assert not disk.exists(folder)


def test_fsync_syncs_the_descriptor(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(disk_module, "_sync_data", synced.append)
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.fsync()
    assert synced == [file.fileno()]


def test_lock_is_exclusive_until_released(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    lock.release()
    disk.lock(path).release()


def test_usage_of_the_file_system(disk: Disk, tmp_path: Path) -> None:
    usage = disk.usage(str(tmp_path))
    assert 0 <= usage.free_bytes <= usage.total_bytes


def test_failed_open_closes_no_descriptor() -> None:
    with pytest.raises(OSError):
        RealFile("nowhere", 987_654)


def test_reserved_space_does_not_change_the_size_and_is_released(
    disk: Disk, tmp_path: Path
) -> None:
    path = tmp_path / "a.log"
    file = disk.open(str(path), create=True)
    if not file.reserve(1 << 20):
        pytest.skip("this file system cannot reserve space")
    assert (file.size, os.stat(path).st_size) == (0, 0)
    assert os.stat(path).st_blocks * 512 >= 1 << 20
    assert file.append(b"abc") == 0
    file.truncate(file.size)
    assert os.stat(path).st_size == 3
    assert os.stat(path).st_blocks * 512 < 1 << 20
    assert disk.read(str(path)) == b"abc"


def test_reserving_more_than_the_free_space_fails(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    assert not file.reserve(1 << 60)
    assert file.append(b"abc") == 0
