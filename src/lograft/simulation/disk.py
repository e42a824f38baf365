"""The Disk seam of a simulated process, over the platter of its machine.

Modifying operations are counted, and a crash can be scheduled at the n-th of them: the process dies
before it, or in the middle of its write. From then on every call raises SimulatedCrash. The platter
decides what survives a kill or a power loss; the next process opens a new SimulatedDisk on it.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, NoReturn, TypeAlias

from lograft.model.seams import Buffer, DirectoryLock, DiskUsage
from lograft.simulation.errors import FenceBroken, SimulatedCrash
from lograft.simulation.platter import (
    FileNode,
    FolderNode,
    Link,
    Move,
    Platter,
    Unlink,
    Write,
    apply,
    os_error,
)
from lograft.simulation.trace import Trace

Operation: TypeAlias = Literal[
    "read",
    "write",
    "truncate",
    "reserve",
    "fsync",
    "create",
    "rename",
    "unlink",
    "make_dir",
    "fsync_dir",
]

#: Range of the virtual latency of each operation in ns; occasionally it is a hundred times higher.
LATENCY_NS: Final[dict[str, tuple[int, int]]] = {
    "fsync": (200_000, 2_000_000),
    "fsync_dir": (200_000, 2_000_000),
    "read": (1_000, 20_000),
}
LATENCY_NS_DEFAULT: Final = (1_000, 10_000)
SPIKE_CHANCE: Final = 0.01


@dataclass(slots=True, kw_only=True)
class DiskFault:
    """A fault injected into matching operations.

    fail       raises an OSError with `error`; a failed fsync also drops the dirty pages, and the
               next fsync succeeds
    lose       the write succeeds and is in the page cache, but never reaches stable storage
    misdirect  the write reaches stable storage at another position
    delay      the operation takes `delay_ms` longer, then succeeds
    """

    operation: Operation
    effect: Literal["fail", "lose", "misdirect", "delay"] = "fail"
    delay_ms: int = 0
    error: int = errno.EIO
    #: Matches paths that contain this text.
    path_part: str = ""
    #: Number of matching operations to let through first.
    skip: int = 0
    times: int = 1
    #: Evaluated when the fault would be injected; if false, the fault is discarded.
    is_allowed: Callable[[], bool] = field(default=lambda: True)


@dataclass(slots=True, kw_only=True)
class Crash:
    """The process dies at a modifying operation; a countdown of 1 means the next one."""

    countdown: int
    on_crash: Callable[[], None] = field(default=lambda: None)


class SimulatedFile:
    """Tracks its own size, like the real file: after a failed append the size is still the end of
    the valid bytes, although the file may be longer."""

    __slots__ = ("_disk", "_node", "_path", "_size")

    def __init__(self, disk: "SimulatedDisk", path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._size = len(node.live)

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def pread(self, size: int, position: int) -> bytes:
        self._disk.begin("read", self._path)
        return bytes(self._node.live[position : position + size])

    def append(self, *parts: Buffer) -> int:
        position = self._size
        data = b"".join(parts)
        self._disk.write(self._node, self._path, data, position)
        self._size = position + len(data)
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        self._disk.write(self._node, self._path, bytes(data), position)
        self._size = max(self._size, position + len(data))

    def truncate(self, size: int) -> None:
        self._disk.begin("truncate", self._path, size)
        self._disk.reserve(size - self._node.occupied_bytes, self._path)
        self._node.reserved = 0
        self._node.resize(size)
        self._size = size
        self._node.modified_ms = self._disk.wall_ms()

    def reserve(self, size: int) -> bool:
        self._disk.begin("reserve", self._path, size)
        try:
            self._disk.reserve(max(0, size - self._node.occupied_bytes), self._path)
        except OSError:
            return False
        self._node.reserved = max(self._node.reserved, size)
        return True

    def fsync(self) -> None:
        try:
            self._disk.begin("fsync", self._path)
        except OSError:
            self._node.drop_dirty_pages()
            raise
        self._node.fsync()

    def fileno(self) -> int:
        raise FenceBroken("a simulated file has no file descriptor: use pread")


class SimulatedDisk:
    def __init__(
        self,
        platter: Platter,
        *,
        random: Random,
        trace: Trace | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
        slowness: Callable[[], int] = lambda: 1,
    ) -> None:
        self.platter = platter
        self.trace = trace or Trace()
        self.wall_ms = wall_ms
        self._slowness = slowness
        self.faults: list[DiskFault] = []
        self.crash: Crash | None = None
        self.is_dead = False
        #: Set while a checker reads the disk: reads then take no time and have no faults.
        self.is_inspected = False
        #: Number of modifying operations of this process.
        self.operations = 0
        #: Virtual time of operations since the last `take_spent_ns`.
        self.spent_ns = 0
        self._random = random

    # -- lifecycle of the process ---------------------------------------------------------------

    def kill(self) -> None:
        self.is_dead = True
        self.crash = None
        for path, holder in list(self.platter.locks.items()):
            if holder is self:
                del self.platter.locks[path]

    def crash_after(self, operations: int, on_crash: Callable[[], None] = lambda: None) -> None:
        """Schedules a crash at the `operations`-th modifying operation from now."""
        self.crash = Crash(countdown=operations, on_crash=on_crash)

    def _die(self) -> NoReturn:
        crash = self.crash
        self.kill()
        self.trace.event("crash")
        if crash:
            crash.on_crash()
        raise SimulatedCrash

    def begin(self, operation: Operation, path: str, *fields: int | str) -> DiskFault | None:
        """Counts an operation and adds its latency; may crash the process. Returns a fault that the
        operation has to apply."""
        if self.is_inspected and operation == "read":
            return None
        if self.is_dead:
            raise SimulatedCrash
        if operation != "read":
            self.operations += 1
            self.trace.event(operation, path, *fields)
            crash = self.crash
            if crash and operation != "write":
                crash.countdown -= 1
                if crash.countdown <= 0:
                    self._die()
        low, high = LATENCY_NS.get(operation, LATENCY_NS_DEFAULT)
        chance = self._random.random()
        cost_ns = (low + int((high - low) * chance)) * self._slowness()
        self.spent_ns += cost_ns * 100 if chance < SPIKE_CHANCE else cost_ns
        return self._fault(operation, path) if self.faults else None

    def _fault(self, operation: Operation, path: str) -> DiskFault | None:
        for fault in self.faults:
            if fault.operation != operation or fault.path_part not in path or fault.times <= 0:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.is_allowed():
                continue
            self.trace.event("fault", fault.effect, operation, path)
            if fault.effect == "fail":
                raise os_error(fault.error, path)
            if fault.effect == "delay":
                self.spent_ns += fault.delay_ms * 1_000_000
                return None
            return fault
        return None

    def reserve(self, growth: int, path: str) -> None:
        if growth > 0 and self.platter.used_bytes + growth > self.platter.capacity_bytes:
            raise os_error(errno.ENOSPC, path)
        self.platter.used_bytes += growth

    def write(self, node: FileNode, path: str, data: bytes, position: int) -> None:
        fault = self.begin("write", path, position, len(data))
        crash = self.crash
        if crash:
            crash.countdown -= 1
            if crash.countdown <= 0:
                node.write(data[: self._random.randint(0, len(data))], position)
                self._die()
        growth = max(0, position + len(data) - node.occupied_bytes)
        free_bytes = self.platter.capacity_bytes - self.platter.used_bytes
        if growth > free_bytes:
            # Like a kernel: the part that fits is written, and the next write fails.
            kept = data[: max(0, len(data) - growth + free_bytes)]
            node.write(kept, position)
            self.platter.used_bytes += free_bytes
            raise os_error(errno.ENOSPC, path)
        self.platter.used_bytes += growth
        node.modified_ms = self.wall_ms()
        if fault is None:
            node.write(data, position)
            return
        apply(node.live, Write(position, data), None)
        node.is_suspect = True
        if fault.effect == "misdirect":
            elsewhere = self._random.randrange(max(1, len(node.live)))
            node.pending.append(Write(elsewhere, data))

    # -- the seam ------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        node = self.platter.find(path)
        if node is None and create:
            folder, name = self._parent(path)
            self.begin("create", path)
            node = FileNode(self.wall_ms())
            folder.change(Link(name, node))
        elif self.is_dead:
            raise SimulatedCrash
        return SimulatedFile(self, path, self.platter.file(path))

    def read(self, path: str) -> bytes:
        self.begin("read", path)
        return bytes(self.platter.file(path).live)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), FolderNode)

    def _find(self, path: str) -> FileNode | FolderNode | None:
        if self.is_dead:
            raise SimulatedCrash
        return self.platter.find(path)

    def list_dir(self, path: str) -> list[str]:
        self.begin("read", path)
        return sorted(self.platter.folder(path).live)

    def make_dir(self, path: str) -> None:
        folder = self.platter.root
        parent_path = ""
        for name in path.split("/"):
            if name in ("", "."):
                continue
            parent_path = f"{parent_path}/{name}"
            node = folder.live.get(name)
            if node is None:
                self.begin("make_dir", parent_path)
                node = FolderNode(self.wall_ms())
                folder.change(Link(name, node))
            if not isinstance(node, FolderNode):
                raise os_error(errno.EEXIST, parent_path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        source_folder, source_name = self._parent(source)
        target_folder, target_name = self._parent(target)
        node = source_folder.live.get(source_name)
        if node is None:
            raise os_error(errno.ENOENT, source)
        replaced = target_folder.live.get(target_name)
        if isinstance(replaced, FolderNode) and (not isinstance(node, FolderNode) or replaced.live):
            raise os_error(errno.ENOTEMPTY, target)
        if isinstance(node, FolderNode) and isinstance(replaced, FileNode):
            raise os_error(errno.ENOTDIR, target)
        self.begin("rename", source, target)
        if replaced is node:
            return
        if isinstance(replaced, FileNode):
            self.platter.used_bytes -= replaced.occupied_bytes
        target_folder.change(Move(source_folder, source_name, target_name, node))

    def unlink(self, path: str) -> None:
        folder, name = self._parent(path)
        node = self.platter.file(path)
        self.begin("unlink", path)
        self.platter.used_bytes -= node.occupied_bytes
        folder.change(Unlink(name))

    def remove_tree(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, FileNode):
            self.unlink(path)
            return
        for name in sorted(node.live):
            self.remove_tree(f"{path}/{name}")
        folder, name = self._parent(path)
        self.begin("unlink", path)
        folder.change(Unlink(name))

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node.modified_ms

    def fsync_dir(self, path: str) -> None:
        folder = self.platter.folder(path)
        self.begin("fsync_dir", path)
        folder.fsync()

    def lock(self, path: str) -> DirectoryLock:
        holder = self.platter.locks.get(path)
        if holder is not None:
            raise BlockingIOError(errno.EWOULDBLOCK, "the lock is held by another process", path)
        if not self.exists(path):
            self.open(path, create=True)
        self.platter.locks[path] = self
        return SimulatedLock(self.platter, path, self)

    def boot_id(self) -> str:
        return f"boot-{self.platter.boots}"

    def usage(self, path: str) -> DiskUsage:
        self.platter.folder(path)
        total = self.platter.capacity_bytes
        return DiskUsage(total_bytes=total, free_bytes=total - self.platter.used_bytes)

    def _parent(self, path: str) -> tuple[FolderNode, str]:
        if self.is_dead:
            raise SimulatedCrash
        folder, _, name = path.rstrip("/").rpartition("/")
        return self.platter.folder(folder), name

    def take_spent_ns(self) -> int:
        spent_ns, self.spent_ns = self.spent_ns, 0
        return spent_ns


class SimulatedLock:
    __slots__ = ("_holder", "_path", "_platter")

    def __init__(self, platter: Platter, path: str, holder: object) -> None:
        self._platter = platter
        self._path = path
        self._holder = holder

    def release(self) -> None:
        if self._platter.locks.get(self._path) is self._holder:
            del self._platter.locks[self._path]
