"""The outgoing connections: one to each other server.

Raft tolerates lost messages, so the messages that wait for a connection are bounded, and dropped if
it cannot be established. A closed connection is reopened immediately: if the host refuses it, the
process has exited, and the other servers need not wait for a timeout.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from lograft.model.seams import Address, Channel, Runtime, Task
from lograft.wire.errors import FrameTooLarge
from lograft.wire.frames import FrameBuffer

FRAME_BYTES_MAX: Final = 8 << 20
CONNECT_TIMEOUT_MS: Final = 1_000
#: Number of frames that wait for a connection; the oldest is dropped first.
WAITING_MAX: Final = 64
#: Timeout of a peer that reads nothing; the following messages are dropped.
UNSENT_BYTES_MAX: Final = 16 << 20


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Link:
    """The connection to one address, and the Receiver of its frames."""

    def __init__(
        self,
        runtime: Runtime,
        address: Address,
        *,
        on_frame: Callable[[bytes], None],
        on_refused: Callable[[], None],
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_lost` is called if the responses to sent requests will not arrive."""
        self._runtime = runtime
        self._address = address
        self._on_frame = on_frame
        self._on_refused = on_refused
        self._on_lost = on_lost
        self._channel: Channel | None = None
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._is_connecting = False
        self._is_closed = False
        self._task: Task | None = None

    def send(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._channel is None:
            self._waiting.append(frame(data))
            self._connect()
        elif self._channel.unsent_bytes < UNSENT_BYTES_MAX:
            self._channel.send([frame(data)])

    def close(self) -> None:
        """Queued frames are still sent."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        if self._channel is not None:
            self._channel.close()

    def _connect(self) -> None:
        if not self._is_connecting and not self._is_closed:
            self._is_connecting = True
            self._task = self._runtime.spawn(
                self._try_to_connect(), name=f"connect to {self._address}"
            )

    async def _try_to_connect(self) -> None:
        try:
            channel = await self._runtime.transport.connect(
                self._address, timeout_ms=CONNECT_TIMEOUT_MS
            )
        except ConnectionRefusedError:
            self._waiting.clear()
            self._on_refused()
            return
        except OSError:
            self._waiting.clear()
            self._on_lost()
            return
        finally:
            self._is_connecting = False
        self._channel = channel
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        channel.start(self)
        waiting, self._waiting = self._waiting, deque(maxlen=WAITING_MAX)
        if waiting:
            channel.send(list(waiting))

    # The receiver of the channel.

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        try:
            for each in self._frames.add_received(count):
                self._on_frame(bytes(each))
        except FrameTooLarge:
            assert self._channel is not None
            self._channel.abort()

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self._channel = None
        self._on_lost()
        # Waits for the host's response to the connection attempt, not for the queued frames.
        self._connect()
