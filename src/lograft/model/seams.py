"""The seams: six Protocols through which Lograft uses the outside world.

Production code uses clock, randomness, disk, threads, network and tasks only through them.
`runtime/` and `net/` implement them with the operating system, `simulation/` with virtual time,
seeded randomness, a disk that loses power and links that break.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

T = TypeVar("T")
#: Types that struct, sockets and files accept as bytes.
Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    def mono_ms(self) -> int:
        """Never goes back; the only clock for timeouts."""

    def mono_ns(self) -> int: ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. Only for timestamps and retention."""


class Randomness(Protocol):
    def uuid(self) -> UUID: ...

    def bytes(self, count: int) -> bytes:
        """Suitable for secrets in production, seeded in simulation."""

    def uniform(self, low: float, high: float) -> float: ...

    def below(self, bound: int) -> int:
        """Returns a number in [0, bound)."""


class File(Protocol):
    """An open file. There is no close(): the descriptor is closed with the last reference to the
    object, so a FileSlice that waits to be sent can never read another file's bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Returns up to `size` bytes; fewer only at the end of the file."""

    def append(self, *parts: Buffer) -> int:
        """Writes all parts at the end of the file; returns the position of the first one."""

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size: int) -> None:
        """Also releases space that was reserved beyond that size."""

    def reserve(self, size: int) -> bool:
        """Allocates disk space for a file of that size without changing its size. Returns False if
        the file system does not support that, or has not enough space."""

    def fsync(self) -> None:
        """Blocks: must be called in a worker's job, or before the node serves requests."""

    def fileno(self) -> int:
        """For sendfile; only `net/` uses it."""


class FileSlice(NamedTuple):
    file: File
    position: int
    size: int


#: The parts of a response. FileSlices are sent by sendfile, without reading their bytes.
Part: TypeAlias = bytes | bytearray | memoryview | FileSlice


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Synchronous. fsync and fsync_dir block, so they run in a worker's job (lane: the log dir)
    or before the node serves requests. Every failure is an OSError. Paths are plain strings."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing. `create` creates the file if it does not exist."""

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Returns the names, sorted."""

    def make_dir(self, path: str) -> None:
        """Creates the directory and its parents; does nothing if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Atomic, replaces the target. Durable only after fsync_dir of the directory."""

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> DirectoryLock:
        """Locks exclusively between processes; raises BlockingIOError if another one has the
        lock."""

    def usage(self, path: str) -> "DiskUsage": ...

    def boot_id(self) -> str:
        """Identifies the boot of the operating system: until the next boot, written data survives
        even the death of the process, fsynced or not. "" if unknown."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    total_bytes: int
    free_bytes: int


class Workers(Protocol):
    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        """Runs a blocking job outside the loop and returns its result. Jobs of one lane run one
        after another in the order of their calls; lane "" has no order."""


class Task(Protocol):
    def cancel(self) -> bool: ...

    def done(self) -> bool: ...

    def __await__(self) -> Any: ...


class Spawn(Protocol):
    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        """Starts a task that the node owns: its failure ends the node, the node's end cancels
        it."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Receiver(Protocol):
    """The callbacks of a channel. All are called in the loop, one at a time."""

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; writable, never empty."""

    def on_received(self, count: int) -> None:
        """`count` bytes have been written to the start of the last buffer."""

    def on_drained(self) -> None:
        """The kernel has accepted everything passed to send()."""

    def on_closed(self, error: Exception | None) -> None:
        """The last call. None: the peer ended the stream or this side closed it."""


class Channel(Protocol):
    """A bidirectional byte stream that never blocks."""

    @property
    def local(self) -> Address: ...

    @property
    def peer(self) -> Address: ...

    @property
    def unsent_bytes(self) -> int: ...

    def start(self, receiver: Receiver) -> None: ...

    def send(self, parts: Sequence[Part]) -> None:
        """Queues the parts in order; immediately sends what the kernel accepts."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Closes after everything queued has been sent."""

    def abort(self) -> None:
        """Closes immediately; everything queued is dropped."""


class Listener(Protocol):
    @property
    def address(self) -> Address:
        """The bound address, with the actual port if port 0 was requested."""

    def pause_accepting(self) -> None:
        """Connections wait in the backlog; a few earlier ones may still be passed to the
        callback."""

    def resume_accepting(self) -> None: ...

    def close(self) -> None: ...


class Transport(Protocol):
    def listen(
        self, address: Address, on_channel: Callable[[Channel], None]
    ) -> Awaitable[Listener]: ...

    def connect(self, address: Address, *, timeout_ms: int) -> Awaitable[Channel]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The six seams of one node."""

    clock: Clock
    randomness: Randomness
    disk: Disk
    workers: Workers
    transport: Transport
    spawn: Spawn
