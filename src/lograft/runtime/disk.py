"""The Disk seam over the files and directories of the operating system.

Every failure raises the original OSError. Nothing is retried except short reads and writes, which
are not failures: the kernel processed a part, and the rest follows.
"""

import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable
from typing import Final

from lograft.model.seams import Buffer, DirectoryLock, DiskUsage, File

#: The kernel rejects longer vectors (IOV_MAX is 1024 on Linux and macOS).
_VECTOR_PARTS_MAX: Final = 1024
_NEW_FILE_MODE: Final = 0o644
_NANOSECONDS_PER_MS: Final = 1_000_000
#: Linux generates a new id with every boot.
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"

#: fdatasync also makes the new size of the file durable, which is all that a log needs.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


#: Flag of Linux's fallocate: does not change the size of the file.
_KEEP_SIZE: Final = 1


def _allocate(descriptor: int, size: int) -> bool:
    """Python has only posix_fallocate, which extends the file."""
    if not sys.platform.startswith("linux"):
        return False
    from ctypes import CDLL, c_int, c_int64

    try:
        fallocate = CDLL(None).fallocate
    except AttributeError:
        return False
    fallocate.argtypes = (c_int, c_int, c_int64, c_int64)
    done: int = fallocate(descriptor, _KEEP_SIZE, 0, size)
    return done == 0


class RealFile:
    """A file that is read and written at explicit positions. The descriptor's own offset is never
    used, so reads, appends and truncations cannot disturb each other."""

    __slots__ = ("_descriptor", "_path", "_size")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._size = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def __del__(self) -> None:
        # After a failure in the constructor there is no descriptor.
        descriptor = getattr(self, "_descriptor", -1)
        if descriptor >= 0:
            os.close(descriptor)

    def __repr__(self) -> str:
        return f"RealFile({self._path!r}, size={self._size})"

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        chunks = [data]
        missing = size - len(data)
        while missing and data:
            data = os.pread(self._descriptor, missing, position + size - missing)
            chunks.append(data)
            missing -= len(data)
        return b"".join(chunks)

    def append(self, *parts: Buffer) -> int:
        begin = self._size
        if len(parts) == 1:
            data = parts[0]
            written = os.pwrite(self._descriptor, data, begin)
            end = begin + len(data)
            if begin + written < end:
                self._write(memoryview(data)[written:], begin + written)
        else:
            end = begin
            for first in range(0, len(parts), _VECTOR_PARTS_MAX):
                end = self._write_vector(parts[first : first + _VECTOR_PARTS_MAX], end)
        # Only a complete append counts: after a failure in the middle the size is still the end of
        # the valid bytes.
        self._size = end
        return begin

    def pwrite(self, data: Buffer, position: int) -> None:
        end = self._write(data, position)
        if end > self._size:
            self._size = end

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def reserve(self, size: int) -> bool:
        return _allocate(self._descriptor, size)

    def fsync(self) -> None:
        _sync_data(self._descriptor)

    def _write(self, data: Buffer, position: int) -> int:
        written = os.pwrite(self._descriptor, data, position)
        size = len(data)
        while written < size:
            count = os.pwrite(self._descriptor, memoryview(data)[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "The kernel accepts no more bytes.", self._path)
            written += count
        return position + size

    def _write_vector(self, parts: tuple[Buffer, ...], position: int) -> int:
        sizes = [len(part) for part in parts]
        end = position + sum(sizes)
        written = os.pwritev(self._descriptor, parts, position)
        if position + written == end:
            return end
        for part, size in zip(parts, sizes, strict=True):
            if written < size:
                self._write(memoryview(part)[written:], position + written)
                written = size
            position += size
            written -= size
        return end


class RealLock:
    """flock on an open descriptor, which the kernel releases when the process ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            descriptor = os.open(path, os.O_RDWR | flags, _NEW_FILE_MODE)
        except OSError as error:
            # Tools read directories without write permission.
            if create or error.errno not in (errno.EACCES, errno.EROFS):
                raise
            descriptor = os.open(path, os.O_RDONLY | flags)
        return RealFile(path, descriptor)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // _NANOSECONDS_PER_MS

    def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> DirectoryLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _NEW_FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealLock(descriptor)

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def usage(self, path: str) -> DiskUsage:
        statistics = os.statvfs(path)
        return DiskUsage(
            total_bytes=statistics.f_blocks * statistics.f_frsize,
            free_bytes=statistics.f_bavail * statistics.f_frsize,
        )
