"""The storage of one simulated machine: what is in the page cache, and what is on the metal.

Every file and every folder has a live state (what a process sees), a durable one (what a power
loss leaves) and the ordered operations that lie between them. fsync of a file moves its
operations to the durable image; entries of a folder need an fsync of the *folder*: a file that
was fsynced may still vanish with its name.

A power loss keeps a drawn subset of the pending operations, not only a prefix: kernels write
pages back in any order. Writes tear at 512 bytes, and a region whose size made it to the metal but
whose data did not holds zeros or stale bytes.
"""

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
    """A rename: one step, also between folders; pending in the folder it moves into."""

    source: "FolderNode"
    source_name: str
    name: str
    node: "Node"


class FileNode:
    __slots__ = ("durable", "is_suspect", "live", "modified_ms", "pending", "reserved")

    def __init__(self, modified_ms: int) -> None:
        self.live = bytearray()
        #: Space that is allocated, whatever the size; a power loss gives it back.
        self.reserved = 0
        self.durable = bytearray()
        self.pending: list[Write | Resize] = []
        self.modified_ms = modified_ms
        #: The cache holds bytes that will never reach the metal (failed fsync, lost write).
        self.is_suspect = False

    @property
    def occupied(self) -> int:
        return max(len(self.live), self.reserved)

    def write(self, data: bytes, position: int) -> None:
        put(self.live, Write(position, data), None)
        self.pending.append(Write(position, data))

    def resize(self, size: int) -> None:
        put(self.live, Resize(size), None)
        self.pending.append(Resize(size))

    def fsync(self) -> None:
        for operation in self.pending:
            put(self.durable, operation, None)
        self.pending.clear()

    def drop_dirty_pages(self) -> None:
        """A failed fsync as Linux does it: the pages count as clean, their data goes nowhere."""
        self.is_suspect = bool(self.pending)
        self.pending.clear()

    def evict(self) -> None:
        """Reads see the metal again, with what is still to be written on top."""
        self.live = bytearray(self.durable)
        for operation in self.pending:
            put(self.live, operation, None)
        self.is_suspect = False


class FolderNode:
    __slots__ = ("durable", "live", "modified_ms", "pending")

    def __init__(self, modified_ms: int) -> None:
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Link | Unlink | Move] = []
        self.modified_ms = modified_ms

    def change(self, operation: Link | Unlink | Move) -> None:
        _enter(self.live, operation)
        if isinstance(operation, Move) and operation.source is not self:
            operation.source.live.pop(operation.source_name, None)
        self.pending.append(operation)

    def settle(self, operation: Link | Unlink | Move) -> None:
        _enter(self.durable, operation)
        if isinstance(operation, Move) and operation.source is not self:
            operation.source.durable.pop(operation.source_name, None)

    def fsync(self) -> None:
        for operation in self.pending:
            self.settle(operation)
        self.pending.clear()


Node: TypeAlias = FileNode | FolderNode


def _enter(entries: dict[str, Node], operation: Link | Unlink | Move) -> None:
    match operation:
        case Link(name, node):
            entries[name] = node
        case Unlink(name):
            entries.pop(name, None)
        case Move(_, source_name, name, node):
            entries.pop(source_name, None)
            entries[name] = node


def put(image: bytearray, operation: Write | Resize, filler: Callable[[int], bytes] | None) -> None:
    """Applies one operation; a gap before a write is a hole, or what `filler` finds there."""
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
    def __init__(self, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.root = FolderNode(0)
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        #: Lives of the kernel: a killed process does not end one, a power loss does.
        self.boots = 1
        #: How likely a restarted process no longer finds cached bytes that the metal never got.
        self.eviction_chance = 0.5
        #: Lock path -> the process that holds it; a dead holder holds nothing.
        self.locks: dict[str, object] = {}

    # -- finding -----------------------------------------------------------------------------

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
            raise failure(errno.ENOENT, path)
        if not isinstance(node, FolderNode):
            raise failure(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> FileNode:
        node = self.find(path)
        if node is None:
            raise failure(errno.ENOENT, path)
        if isinstance(node, FolderNode):
            raise failure(errno.EISDIR, path)
        return node

    def files(
        self, node: FolderNode | None = None, path: str = ""
    ) -> Iterator[tuple[str, FileNode]]:
        """All live files below a folder, by path, sorted."""
        for name, child in sorted((node or self.root).live.items()):
            if isinstance(child, FolderNode):
                yield from self.files(child, f"{path}/{name}")
            else:
                yield f"{path}/{name}", child

    # -- what happens to machines ------------------------------------------------------------

    def process_killed(self, random: Random) -> None:
        """The page cache survives; pages the metal never got may be evicted meanwhile."""
        for _, node in self.files():
            if node.is_suspect and random.random() < self.eviction_chance:
                node.evict()

    def power_lost(self, random: Random) -> None:
        self.boots += 1
        mood = random.choice(MOODS)
        _settle_folder(self.root, random, mood)
        _reload_folder(self.root)
        for _, node in self.files():
            node.reserved = 0
        self.used_bytes = sum(node.occupied for _, node in self.files())

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Bit rot: both what is cached and what is on the metal."""
        node = self.file(path)
        for image in (node.live, node.durable):
            if position < len(image):
                image[position] ^= 1 << bit


def failure(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


# -- power loss --------------------------------------------------------------------------------

#: How a power loss treats pending operations; "mixed" draws one of the others per file.
MOODS: Final = ("mixed", "mixed", "mixed", "nothing", "everything", "prefix", "subset")
MOODS_OF_A_FILE: Final = ("nothing", "everything", "prefix", "subset", "subset")


def _survivors(count: int, random: Random, mood: str) -> list[int]:
    if mood == "mixed":
        mood = random.choice(MOODS_OF_A_FILE)
    match mood:
        case "nothing":
            return []
        case "everything":
            return list(range(count))
        case "prefix":
            return list(range(random.randint(0, count)))
        case _:
            return [index for index in range(count) if random.random() < 0.5]


def _settle_folder(folder: FolderNode, random: Random, mood: str) -> None:
    pending = folder.pending
    for index in _survivors(len(pending), random, mood) if pending else ():
        folder.settle(pending[index])
    folder.pending = []
    for _, node in sorted(folder.durable.items()):
        if isinstance(node, FolderNode):
            _settle_folder(node, random, mood)
        elif node.pending:
            _settle_file(node, random, mood)


def _reload_folder(folder: FolderNode) -> None:
    # After all folders have settled: a move between folders changes two of them.
    folder.live = dict(folder.durable)
    for node in folder.live.values():
        if isinstance(node, FolderNode):
            _reload_folder(node)
        else:
            node.live = bytearray(node.durable)
            node.is_suspect = False


def _settle_file(node: FileNode, random: Random, mood: str) -> None:
    filler = _stale_bytes(node, random)
    pending = node.pending
    survivors = _survivors(len(pending), random, mood)
    is_torn = mood != "everything" and random.random() < 0.5
    for index in survivors:
        operation = pending[index]
        if isinstance(operation, Write) and is_torn and index == survivors[-1]:
            for piece in _torn(operation, random):
                put(node.durable, piece, filler)
        else:
            put(node.durable, operation, filler)
    missing = len(node.live) - len(node.durable)
    if missing > 0 and mood != "nothing" and random.random() < 0.3:
        # The new size was written, the data was not.
        node.durable.extend(filler(missing))
    node.pending = []


def _torn(write: Write, random: Random) -> list[Write]:
    """The sectors of a write that made it: a prefix of them, or any."""
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
    """What a sector holds that was allocated but never written: zeros, old data, noise."""
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
