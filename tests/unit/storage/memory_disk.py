"""A Disk in memory that can lose power: what was not fsynced survives as a random subset."""

import random
from dataclasses import dataclass, field

from lograft.model.seams import Buffer, DirectoryLock, DiskUsage


@dataclass
class Inode:
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    #: ("write", position, data) or ("truncate", size), in order.
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)


class MemoryFile:
    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self.inode = inode

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self.inode.content)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.reads += 1
        return bytes(self.inode.content[position : position + size])

    def append(self, *parts: Buffer) -> int:
        position = len(self.inode.content)
        self.pwrite(b"".join(parts), position)
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        self._disk.step("write", self._path)
        raw = bytes(data)
        self.inode.content[position : position + len(raw)] = raw
        self.inode.pending.append(("write", position, raw))

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self._path)
        _truncate(self.inode.content, size)
        self.inode.pending.append(("truncate", size, b""))

    def reserve(self, size: int) -> bool:
        return False

    def fsync(self) -> None:
        self._disk.step("fsync", self._path)
        self.inode.durable = bytes(self.inode.content)
        self.inode.pending.clear()

    def fileno(self) -> int:
        raise AssertionError("nothing is sent from memory")


def _truncate(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


class PowerLost(Exception):
    """The step at which the test wanted the power to go."""


class Lock:
    def release(self) -> None:
        pass


class MemoryDisk:
    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        #: Changes of names since the last fsync of their folder: (folder, from or "", to or "").
        self.pending_names: list[tuple[str, str, str, Inode]] = []
        self.folders: set[str] = {""}
        self.steps = 0
        self.reads = 0
        self.opens = 0
        self.fail_at_step: int | None = None
        self.error: OSError | None = None
        self.trace: list[str] = []

    def step(self, kind: str, path: str) -> None:
        self.steps += 1
        self.trace.append(f"{kind} {path}")
        if self.fail_at_step is not None and self.steps >= self.fail_at_step:
            raise PowerLost(path)
        if self.error is not None:
            raise self.error

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.opens += 1
        inode = self.names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            self.step("create", path)
            inode = self.names[path] = Inode()
            self.pending_names.append((_folder(path), "", path, inode))
        return MemoryFile(self, path, inode)

    def read(self, path: str) -> bytes:
        return bytes(self._inode(path).content)

    def _inode(self, path: str) -> Inode:
        if path not in self.names:
            raise FileNotFoundError(path)
        return self.names[path]

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.folders

    def is_dir(self, path: str) -> bool:
        return path in self.folders

    def list_dir(self, path: str) -> list[str]:
        return sorted(name[len(path) + 1 :] for name in self.names if _folder(name) == path)

    def make_dir(self, path: str) -> None:
        self.folders.add(path)

    def rename(self, source: str, target: str) -> None:
        inode = self._inode(source)
        self.step("rename", source)
        del self.names[source]
        self.names[target] = inode
        self.pending_names.append((_folder(target), source, target, inode))

    def unlink(self, path: str) -> None:
        inode = self._inode(path)
        self.step("unlink", path)
        del self.names[path]
        self.pending_names.append((_folder(path), path, "", inode))

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            self.unlink(name)

    def modified_ms(self, path: str) -> int:
        return 0

    def fsync_dir(self, path: str) -> None:
        self.step("fsync_dir", path)
        for change in self.pending_names:
            if change[0] == path:
                _apply_name(self.durable_names, change)
        self.pending_names = [c for c in self.pending_names if c[0] != path]

    def lock(self, path: str) -> DirectoryLock:
        return Lock()

    def boot_id(self) -> str:
        return ""

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(1 << 40, 1 << 40)

    def lose_power(self, chance: random.Random) -> None:
        """Keeps what was fsynced, and a random subset of the rest, the last write torn."""
        self.fail_at_step = None
        names = dict(self.durable_names)
        for change in self.pending_names:
            if chance.random() < 0.5:
                _apply_name(names, change)
        for inode in {id(i): i for i in (*self.names.values(), *names.values())}.values():
            content = bytearray(inode.durable)
            for kind, position, data in inode.pending:
                if chance.random() < 0.4:
                    continue
                if kind == "truncate":
                    _truncate(content, position)
                    continue
                if chance.random() < 0.2:
                    data = data[: chance.randrange(len(data) + 1)]
                if len(content) < position:
                    _truncate(content, position)
                content[position : position + len(data)] = data
            inode.content = content
            inode.durable = bytes(content)
            inode.pending.clear()
        self.names = names
        self.durable_names = dict(names)
        self.pending_names.clear()


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _apply_name(names: dict[str, Inode], change: tuple[str, str, str, Inode]) -> None:
    _, source, target, inode = change
    if source and names.get(source) is inode:
        del names[source]
    if target:
        names[target] = inode
