"""The seams: all that Lograft asks of the world outside, as six Protocols.

Production code reaches clock, chance, disk, threads, network and tasks through these and
nothing else. `runtime/` and `net/` implement them with the operating system, `simulation/`
with virtual time, seeded chance, a disk that loses power and links that break.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

T = TypeVar("T")
#: What struct, sockets and files take as bytes.
Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    def mono_ms(self) -> int:
        """Never goes back; the only time that timeouts may use."""

    def mono_ns(self) -> int: ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. Only for timestamps and retention."""


class Randomness(Protocol):
    def uuid(self) -> UUID: ...

    def bytes(self, count: int) -> bytes:
        """Fit for secrets in production, seeded in simulation."""

    def uniform(self, low: float, high: float) -> float: ...

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""


class File(Protocol):
    """An open file. There is no close(): the descriptor goes when the last holder lets go of the
    object, so a FileSlice that waits to be sent can never read another file's bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def append(self, *parts: Buffer) -> int:
        """Writes all parts at the end of the file; returns the position where they begin."""

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size: int) -> None:
        """Gives back what was reserved beyond that size, too."""

    def reserve(self, size: int) -> bool:
        """Allocates disk space for a file of that size; its size stays what it is. False: the file
        system cannot do that, or has not enough space."""

    def fsync(self) -> None:
        """Blocks: call it in a worker's job, or before the node serves."""

    def fileno(self) -> int:
        """For sendfile; only `net/` asks for it."""


class FileSlice(NamedTuple):
    file: File
    position: int
    size: int


#: What a response is made of. FileSlices leave by sendfile, their bytes are never looked at.
Part: TypeAlias = bytes | bytearray | memoryview | FileSlice


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Synchronous. fsync and fsync_dir block, so they run in a worker's job (lane: the log dir)
    or before the node serves. Every failure is an OSError. Paths are plain strings."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and writing. `create` makes the file if it is not there."""

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Names, sorted."""

    def make_dir(self, path: str) -> None:
        """With its parents; nothing happens if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Atomic, replaces the target. Durable only after fsync_dir of the folder."""

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> DirectoryLock:
        """Exclusive between processes; raises BlockingIOError when another holds it."""

    def usage(self, path: str) -> "DiskUsage": ...

    def boot_id(self) -> str:
        """Names the life of the kernel: within it what was written is there, fsynced or not, even
        if the process that wrote it was killed. "" where that cannot be known."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    total_bytes: int
    free_bytes: int


class Workers(Protocol):
    async def run(self, job: Callable[[], T], *, lane: str = "") -> T:
        """Runs a blocking job off the loop and returns its result. Jobs of one lane run one
        after another in the order of their calls; lane "" has no order."""


class Task(Protocol):
    def cancel(self) -> bool: ...

    def done(self) -> bool: ...

    def __await__(self) -> Any: ...


class Spawn(Protocol):
    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        """Starts a task owned by the node: its failure ends the node, the node's end cancels it."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Receiver(Protocol):
    """What a channel calls. All calls come from the loop, one at a time."""

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; writable, never empty."""

    def on_received(self, count: int) -> None:
        """`count` bytes now lie at the start of the buffer given last."""

    def on_drained(self) -> None:
        """Everything handed to send() has gone to the kernel."""

    def on_closed(self, error: Exception | None) -> None:
        """The last call. None: the peer ended the stream or we closed it."""


class Channel(Protocol):
    """One byte stream, both ways, never blocking."""

    @property
    def local(self) -> Address: ...

    @property
    def peer(self) -> Address: ...

    @property
    def unsent_bytes(self) -> int: ...

    def start(self, receiver: Receiver) -> None: ...

    def send(self, parts: Sequence[Part]) -> None:
        """Queues the parts in order; sends at once what the kernel takes."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """After what is queued has been sent."""

    def abort(self) -> None:
        """Now; what is queued is dropped."""


class Listener(Protocol):
    @property
    def address(self) -> Address:
        """With the real port where 0 was asked for."""

    def pause_accepting(self) -> None:
        """Connections wait in the backlog; a few that came before may still be handed over."""

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
