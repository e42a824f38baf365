"""The storage of a simulated machine: its page cache and its stable storage.

Every file and folder has a live state (as processes see it), a durable state (as after a power
loss) and the ordered pending operations between them. fsync of a file applies its operations to the
durable state; directory entries need an fsync of the *folder*, so an fsynced file may still
disappear together with its name.

A power loss keeps a random subset of the pending operations, not only a prefix, because kernels
write pages back in any order. Writes are torn at 512 bytes, and a region whose size was persisted
without its data contains zeros or stale bytes."""

import errno
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple, TypeAlias

SECTOR_BYTES: Final = 512
CAPACITY_BYTES: Final = 1 << 40


class Write(NamedTuple):
    position: int
    data: bytes


class Resize(NamedTuple):
    size: int


class Link(NamedTuple):
    name: str
    node: "Node"


class Unlink(NamedTuple):
    name: str


class Move(NamedTuple):
    """An atomic rename, also between folders; pending in the target folder."""

    source: "FolderNode"
    source_name: str
    name: str
    node: "Node"


class FileNode:
    __slots__ = ("durable", "is_suspect", "live", "modified_ms", "pending", "reserved")

    def __init__(self, modified_ms: int) -> None:
        self.live = bytearray()
        #: Allocated space, which may exceed the size; a power loss releases it.
        self.reserved = 0
        self.durable = bytearray()
        self.pending: list[Write | Resize] = []
        self.modified_ms = modified_ms
        #: Whether the cache has bytes that never reach stable storage (failed fsync, lost write).
        self.is_suspect = False

    @property
    def occupied_bytes(self) -> int:
        return max(len(self.live), self.reserved)

    def write(self, data: bytes, position: int) -> None:
        apply(self.live, Write(position, data), None)
        self.pending.append(Write(position, data))

    def resize(self, size: int) -> None:
        apply(self.live, Resize(size), None)
        self.pending.append(Resize(size))

    def fsync(self) -> None:
        for operation in self.pending:
            apply(self.durable, operation, None)
        self.pending.clear()

    def drop_dirty_pages(self) -> None:
        """Models a failed fsync on Linux: the pages become clean, but their data was not
        written."""
        self.is_suspect = bool(self.pending)
        self.pending.clear()

    def evict(self) -> None:
        """Drops clean pages: reads return the durable state with the pending operations applied."""
        self.live = bytearray(self.durable)
        for operation in self.pending:
            apply(self.live, operation, None)
        self.is_suspect = False


class FolderNode:
    __slots__ = ("durable", "live", "modified_ms", "pending")

    def __init__(self, modified_ms: int) -> None:
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Link | Unlink | Move] = []
        self.modified_ms = modified_ms

    def change(self, operation: Link | Unlink | Move) -> None:
        _apply_entry(self.live, operation)
        if isinstance(operation, Move) and operation.source is not self:
            operation.source.live.pop(operation.source_name, None)
        self.pending.append(operation)

    def settle(self, operation: Link | Unlink | Move) -> None:
        _apply_entry(self.durable, operation)
        if isinstance(operation, Move) and operation.source is not self:
            operation.source.durable.pop(operation.source_name, None)

    def fsync(self) -> None:
        for operation in self.pending:
            self.settle(operation)
        self.pending.clear()


Node: TypeAlias = FileNode | FolderNode


def _apply_entry(entries: dict[str, Node], operation: Link | Unlink | Move) -> None:
    match operation:
        case Link(name, node):
            entries[name] = node
        case Unlink(name):
            entries.pop(name, None)
        case Move(_, source_name, name, node):
            entries.pop(source_name, None)
            entries[name] = node


def apply(
    image: bytearray, operation: Write | Resize, filler: Callable[[int], bytes] | None
) -> None:
    """Applies an operation. A gap before a write is filled with zeros, or by `filler`."""
    if isinstance(operation, Resize):
        size = operation.size
        if size < len(image):
            del image[size:]
        else:
            image.extend(bytes(size - len(image)))
        return
    position, data = operation
    gap = position - len(image)
    if gap > 0:
        image.extend(filler(gap) if filler else bytes(gap))
    image[position : position + len(data)] = data


class Platter:
    """The file system of a machine. It outlives the machine's processes."""

    def __init__(self, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.root = FolderNode(0)
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        #: Number of boots of the machine; only a power loss causes another one.
        self.boots = 1
        #: Probability that cached bytes which are not on stable storage are evicted before a
        #: restart.
        self.eviction_chance = 0.5
        #: Lock path -> the disk of the process that holds it; a dead process holds no locks.
        self.locks: dict[str, object] = {}

    # -- lookup ------------------------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, FolderNode):
                return None
            node = node.live.get(name)
        return node

    def folder(self, path: str) -> FolderNode:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, FolderNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> FileNode:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, FolderNode):
            raise os_error(errno.EISDIR, path)
        return node

    def files(
        self, node: FolderNode | None = None, path: str = ""
    ) -> Iterator[tuple[str, FileNode]]:
        """Yields all live files below a folder with their paths, in order."""
        for name, child in sorted((node or self.root).live.items()):
            if isinstance(child, FolderNode):
                yield from self.files(child, f"{path}/{name}")
            else:
                yield f"{path}/{name}", child

    # -- faults ------------------------------------------------------------------------------

    def on_process_killed(self, random: Random) -> None:
        """Keeps the page cache, but may evict pages that never reach stable storage."""
        for _, node in self.files():
            if node.is_suspect and random.random() < self.eviction_chance:
                node.evict()

    def on_power_lost(self, random: Random) -> None:
        self.boots += 1
        pattern = random.choice(LOSS_PATTERNS)
        _settle_folder(self.root, random, pattern)
        _reload_folder(self.root)
        for _, node in self.files():
            node.reserved = 0
        self.used_bytes = sum(node.occupied_bytes for _, node in self.files())

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flips a bit in the page cache and on stable storage."""
        node = self.file(path)
        for image in (node.live, node.durable):
            if position < len(image):
                image[position] ^= 1 << bit


def os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


# -- power loss --------------------------------------------------------------------------------

#: Which pending operations survive a power loss; "mixed" draws another pattern for each file.
LOSS_PATTERNS: Final = ("mixed", "mixed", "mixed", "nothing", "everything", "prefix", "subset")
LOSS_PATTERNS_OF_FILES: Final = ("nothing", "everything", "prefix", "subset", "subset")


def _survivors(count: int, random: Random, pattern: str) -> list[int]:
    if pattern == "mixed":
        pattern = random.choice(LOSS_PATTERNS_OF_FILES)
    match pattern:
        case "nothing":
            return []
        case "everything":
            return list(range(count))
        case "prefix":
            return list(range(random.randint(0, count)))
        case _:
            return [index for index in range(count) if random.random() < 0.5]


def _settle_folder(folder: FolderNode, random: Random, pattern: str) -> None:
    pending = folder.pending
    for index in _survivors(len(pending), random, pattern) if pending else ():
        folder.settle(pending[index])
    folder.pending = []
    for _, node in sorted(folder.durable.items()):
        if isinstance(node, FolderNode):
            _settle_folder(node, random, pattern)
        elif node.pending:
            _settle_file(node, random, pattern)


def _reload_folder(folder: FolderNode) -> None:
    # Only after all folders are settled, because a move between folders changes two of them.
    folder.live = dict(folder.durable)
    for node in folder.live.values():
        if isinstance(node, FolderNode):
            _reload_folder(node)
        else:
            node.live = bytearray(node.durable)
            node.is_suspect = False


def _settle_file(node: FileNode, random: Random, pattern: str) -> None:
    filler = _stale_bytes(node, random)
    pending = node.pending
    survivors = _survivors(len(pending), random, pattern)
    is_torn = pattern != "everything" and random.random() < 0.5
    for index in survivors:
        operation = pending[index]
        if isinstance(operation, Write) and is_torn and index == survivors[-1]:
            for piece in _tear(operation, random):
                apply(node.durable, piece, filler)
        else:
            apply(node.durable, operation, filler)
    missing = len(node.live) - len(node.durable)
    if missing > 0 and pattern != "nothing" and random.random() < 0.3:
        # The new size was persisted, but not the data.
        node.durable.extend(filler(missing))
    node.pending = []


def _tear(write: Write, random: Random) -> list[Write]:
    """Returns the sectors of a torn write that were persisted: a prefix, or any subset."""
    pieces = []
    position, data = write
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        pieces.append(Write(position + start, data[start:end]))
        start = end
    if random.random() < 0.5:
        return pieces[: random.randint(0, len(pieces))]
    return [piece for piece in pieces if random.random() < 0.5]


def _stale_bytes(node: FileNode, random: Random) -> Callable[[int], bytes]:
    """Returns a filler for sectors that were allocated but never written: zeros, old data or
    noise."""
    kind = random.choice(("zeros", "zeros", "old", "noise"))

    def fill(count: int) -> bytes:
        if kind == "noise":
            return random.randbytes(count)
        if kind == "old" and node.durable:
            start = random.randrange(len(node.durable))
            old = bytes(node.durable[start : start + count])
            return old + bytes(count - len(old))
        return bytes(count)

    return fill
