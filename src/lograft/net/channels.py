"""A channel over a raw non-blocking socket, driven by the event loop's readiness callbacks.

Bytes are received by recv_into into the receiver's own buffer and sent by sendmsg, slices of files
by sendfile: this process copies nothing. (asyncio's transports copy received bytes, or make
sendfile more expensive.) Readiness is level-triggered, so stopping early is always safe: the loop
calls again.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from lograft.model.seams import Address, FileSlice, Part, Receiver
from lograft.net.priority_reads import PriorityReads

#: Bytes that one connection may read before the others have their turn. A receive that starts below
#: the limit may still complete a large frame. The limit is small, because clients wait this long
#: for each connection of a client that writes at full speed: 1 MiB tripled their median latency and
#: did not make the writer more efficient (python -m bench --workload latency-under-load).
READ_BYTES_PER_WAKE: Final = 64 << 10
WRITE_BYTES_PER_WAKE: Final = 4 << 20
#: A larger receive is split in two.
_PIECE_BYTES_MIN: Final = 4 * READ_BYTES_PER_WAKE
#: After this many small reads in a row a channel no longer counts as a bulk channel.
_SMALL_READS_TO_OVERTAKE: Final = 16
#: A larger sendfile would occupy the loop for as long as a fast peer keeps reading.
_SENDFILE_BYTES_MAX: Final = 2 << 20
_VECTOR_PARTS_MAX: Final = 64
#: Up to this size copying is cheaper than additional system calls.
_JOINED_BYTES_MAX: Final = 16 << 10
_COPY_BYTES: Final = 256 << 10
#: How long a closed channel tries to send what is queued.
_LINGER_S: Final = 10.0
#: Delays a header until the file's bytes follow, so that both share packets.
_MORE_FOLLOWS: Final = getattr(socket, "MSG_MORE", 0)
_SENDFILE_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class SocketChannel:
    """One connected socket. Owns it: no other object reads, writes or closes it."""

    __slots__ = (
        "_bulk",
        "_closed",
        "_closing",
        "_linger",
        "_local",
        "_loop",
        "_paused",
        "_peer",
        "_priority_reads",
        "_queue",
        "_receiver",
        "_socket",
        "_unsent_bytes",
        "_waits_for_space",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        peer: Address,
        priority_reads: PriorityReads,
    ) -> None:
        self._loop = loop
        self._priority_reads = priority_reads
        #: Above 0 for a channel that receives large amounts; its small reads count it down.
        self._bulk = 0
        self._socket = connected
        self._peer = peer
        self._local = address_of(connected.getsockname())
        self._receiver: Receiver | None = None
        self._queue: deque[Part] = deque()
        self._unsent_bytes = 0
        self._paused = False
        #: Invariant: True exactly while the loop watches for free space in the send buffer.
        self._waits_for_space = False
        self._closing = False
        self._closed = False
        self._linger: asyncio.TimerHandle | None = None

    @property
    def local(self) -> Address:
        return self._local

    @property
    def peer(self) -> Address:
        return self._peer

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    def start(self, receiver: Receiver) -> None:
        assert self._receiver is None, "a channel is started once"
        self._receiver = receiver
        if self._closed:
            self._loop.call_soon(receiver.on_closed, None)
        elif not self._paused:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._priority_reads.admit(self._socket.fileno(), self._on_readable)

    def pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            if self._receiver is not None and not self._closing:
                self._loop.remove_reader(self._socket.fileno())

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if self._receiver is not None and not self._closing:
                self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def send(self, parts: Sequence[Part]) -> None:
        if self._closing:
            return
        queue = self._queue
        idle = not queue
        total = 0
        for part in parts:
            size = part.size if type(part) is FileSlice else len(part)
            if size:
                total += size
                queue.append(part)
        self._unsent_bytes += total
        if idle and queue:
            if total <= _JOINED_BYTES_MAX and len(queue) > 1:
                self._join()
            self._write()

    def _join(self) -> None:
        """Joins small responses, also with small slices of files, to send them in one call."""
        queue = self._queue
        pieces: list[bytes | bytearray | memoryview] = []
        for part in queue:
            if type(part) is FileSlice:
                file, position, size = part
                try:
                    piece = file.pread(size, position)
                except OSError:
                    return
                if len(piece) != size:
                    return
                pieces.append(piece)
            else:
                assert not isinstance(part, FileSlice)
                pieces.append(part)
        queue.clear()
        queue.append(b"".join(pieces))

    def close(self) -> None:
        if self._closing:
            return
        self._stop_reading()
        self._closing = True
        if self._queue:
            self._linger = self._loop.call_later(_LINGER_S, self.abort)
        else:
            self._finish(None)

    def abort(self) -> None:
        if not self._closed:
            self._stop_reading()
            self._finish(None)

    def _on_readable(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        receive_into = self._socket.recv_into
        budget = READ_BYTES_PER_WAKE
        is_watched = self._bulk > 0 and self._priority_reads.read_waiting()
        while budget > 0 and not (self._paused or self._closing):
            buffer = receiver.get_buffer()
            size = len(buffer)
            if is_watched and size > _PIECE_BYTES_MIN:
                # Leaves the end to a later read, because a complete frame is handled at once.
                size -= READ_BYTES_PER_WAKE
                buffer = buffer[:size]
            try:
                count = receive_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._fail(error)
                return
            if count == 0:
                self._fail(None)
                return
            if self._bulk or count > READ_BYTES_PER_WAKE:
                self._count_read(count)
            receiver.on_received(count)
            if count < size:
                return
            budget -= count

    def _count_read(self, count: int) -> None:
        if count > READ_BYTES_PER_WAKE:
            if not self._bulk:
                self._priority_reads.dismiss(self._socket.fileno())
            self._bulk = _SMALL_READS_TO_OVERTAKE
        elif self._bulk:
            self._bulk -= 1
            if not self._bulk:
                self._priority_reads.admit(self._socket.fileno(), self._on_readable)

    def _on_writable(self) -> None:
        self._write()
        if not self._queue and not self._closing and self._receiver is not None:
            self._receiver.on_drained()

    def _write(self) -> None:
        queue = self._queue
        budget = WRITE_BYTES_PER_WAKE
        try:
            while queue and budget > 0:
                part = queue[0]
                if type(part) is FileSlice:
                    count = self._send_slice(part)
                elif len(queue) == 1:
                    assert not isinstance(part, FileSlice)
                    count = self._socket.send(part)
                    if count == len(part):
                        queue.clear()
                    else:
                        queue[0] = memoryview(part)[count:]
                else:
                    count = self._send_bytes()
                self._unsent_bytes -= count
                budget -= count
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._fail(error)
            return
        if queue:
            if not self._waits_for_space:
                self._waits_for_space = True
                self._loop.add_writer(self._socket.fileno(), self._on_writable)
            return
        if self._waits_for_space:
            self._waits_for_space = False
            self._loop.remove_writer(self._socket.fileno())
        if self._closing:
            self._finish(None)

    def _send_bytes(self) -> int:
        queue = self._queue
        vector: list[bytes | bytearray | memoryview] = []
        flags = 0
        for part in queue:
            if type(part) is FileSlice:
                flags = _MORE_FOLLOWS
                break
            assert not isinstance(part, FileSlice)
            vector.append(part)
            if len(vector) == _VECTOR_PARTS_MAX:
                break
        if len(vector) == 1:
            count = self._socket.send(vector[0], flags)
        else:
            count = self._socket.sendmsg(vector, (), flags)
        left = count
        for part in vector:
            size = len(part)
            if left < size:
                if left:
                    queue[0] = memoryview(part)[left:]
                break
            queue.popleft()
            left -= size
        return count

    def _send_slice(self, part: FileSlice) -> int:
        file, position, size = part
        size_max = min(size, _SENDFILE_BYTES_MAX)
        try:
            count = os.sendfile(self._socket.fileno(), file.fileno(), position, size_max)
        except OSError as error:
            if error.errno not in _SENDFILE_UNSUPPORTED:
                raise
            data = file.pread(min(size, _COPY_BYTES), position)
            count = self._socket.send(data) if data else 0
        if count == 0:
            # The peer already has the size of the response, so there is no way to report the error.
            raise OSError(errno.EIO, "The file ends before the slice to be sent.", file.path)
        if count == size:
            self._queue.popleft()
        else:
            self._queue[0] = FileSlice(file, position + count, size - count)
        return count

    def _stop_reading(self) -> None:
        if not self._closing and not self._paused and self._receiver is not None:
            self._loop.remove_reader(self._socket.fileno())

    def _fail(self, error: OSError | None) -> None:
        self._stop_reading()
        self._finish(error)

    def _finish(self, error: OSError | None) -> None:
        assert not self._closed
        self._closing = self._closed = True
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._waits_for_space:
            self._waits_for_space = False
            self._loop.remove_writer(self._socket.fileno())
        self._queue.clear()
        self._unsent_bytes = 0
        self._priority_reads.dismiss(self._socket.fileno())
        self._socket.close()
        # Dropped, so that channel and receiver do not keep each other alive.
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            # Deferred, because this may run inside a call of the receiver.
            self._loop.call_soon(receiver.on_closed, error)


def address_of(raw: tuple[object, ...]) -> Address:
    """Returns an IPv4 peer of a dual-stack socket, which has an IPv6 address there, with its IPv4
    address, so that limits per address cannot be doubled."""
    host, port = str(raw[0]), int(str(raw[1]))
    host = host.partition("%")[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return Address(host, port)


class BufferSizes(NamedTuple):
    """Sizes of the kernel's buffers for a connection; below 0: the kernel's default."""

    send_bytes: int = -1
    receive_bytes: int = -1


def prepare(stream: socket.socket, buffers: BufferSizes) -> None:
    stream.setblocking(False)
    if buffers.send_bytes >= 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers.send_bytes)
    if buffers.receive_bytes >= 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)
    # Responses are complete when they are sent: waiting to fill a packet would only add latency.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Detects a peer whose machine has disappeared.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
