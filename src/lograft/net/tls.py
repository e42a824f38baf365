"""TLS as a stage between a channel and its receiver: SSLObject with two memory buffers, no socket.

Works over any Channel, also a simulated one. Slices of files are read in pieces and encrypted only
while the channel below has capacity, so a slow peer uses no more memory than with plain sockets.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from lograft.model.seams import Address, Channel, FileSlice, Listener, Part, Receiver, Transport
from lograft.net.errors import HandshakeTimedOut

_CIPHERTEXT_BUFFER_BYTES: Final = 64 << 10
#: Of a connection whose handshake is not done: anyone can open many of them.
_HANDSHAKE_BUFFER_BYTES: Final = 4 << 10
_NO_BUFFER: Final = memoryview(bytearray())
#: Bytes encrypted at a time; encryption waits while the channel below has this much unsent.
_PIECE_BYTES: Final = 128 << 10
_BELOW_BYTES_MAX: Final = 256 << 10
#: Bytes that one connection may decrypt before the others have their turn.
_PLAINTEXT_BYTES_PER_WAKE: Final = 1 << 20
HANDSHAKE_TIMEOUT_MS: Final = 10_000


class TlsChannel:
    """A Channel for the receiver above, the Receiver of the channel below."""

    __slots__ = (
        "_below",
        "_buffer",
        "_closing",
        "_context",
        "_failure",
        "_handshake_deadline",
        "_incoming",
        "_is_decrypt_scheduled",
        "_is_handshake_done",
        "_loop",
        "_on_handshake",
        "_on_identified",
        "_outgoing",
        "_paused",
        "_queue",
        "_queued_bytes",
        "_receiver",
        "_server_hostname",
        "_server_side",
        "_timeout_ms",
        "_tls",
    )

    def __init__(
        self,
        below: Channel,
        context: Callable[[], ssl.SSLContext],
        *,
        server_side: bool,
        server_hostname: str | None = None,
        handshake_timeout_ms: int = HANDSHAKE_TIMEOUT_MS,
        on_handshake: Callable[[bool], None] | None = None,
    ) -> None:
        """`context` is called once, by `start`: connections that are accepted before the node is
        ready wait, and get the certificate that is current when they start. `on_handshake` is
        called once, with whether the handshake succeeded."""
        self._below = below
        self._context = context
        self._on_handshake = on_handshake
        self._on_identified: Callable[[Exception | None], None] | None = None
        self._server_side = server_side
        self._server_hostname = server_hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject
        self._loop = asyncio.get_running_loop()
        self._timeout_ms = handshake_timeout_ms
        self._handshake_deadline: asyncio.TimerHandle | None = None
        self._buffer = memoryview(bytearray(_HANDSHAKE_BUFFER_BYTES))
        self._receiver: Receiver | None = None
        self._queue: deque[Part] = deque()
        self._queued_bytes = 0
        self._is_handshake_done = False
        self._paused = False
        self._closing = False
        #: A decryption has been scheduled with the loop.
        self._is_decrypt_scheduled = False
        self._failure: Exception | None = None

    # Channel of the receiver above.

    @property
    def local(self) -> Address:
        return self._below.local

    @property
    def peer(self) -> Address:
        return self._below.peer

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes + self._below.unsent_bytes

    def peer_certificate(self) -> bytes | None:
        """DER; None before the handshake or if the peer has no certificate."""
        return self._tls.getpeercert(binary_form=True) if self._is_handshake_done else None

    def when_identified(self, callback: Callable[[Exception | None], None]) -> None:
        """Calls `callback` after the handshake, before anything is received, or with an error if
        the handshake failed."""
        self._on_identified = callback

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._tls = self._context().wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server_side,
            server_hostname=self._server_hostname,
        )
        self._handshake_deadline = self._loop.call_later(
            self._timeout_ms / 1000, self._on_handshake_timeout
        )
        self._below.start(self)
        self._do_handshake()

    def send(self, parts: Sequence[Part]) -> None:
        if self._closing:
            return
        for part in parts:
            size = part.size if type(part) is FileSlice else len(part)
            if size:
                self._queue.append(part)
                self._queued_bytes += size
        self._encrypt()

    def pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            # The handshake must read even if the receiver above has paused.
            if self._is_handshake_done:
                self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._below.resume_reading()
            self._schedule_decrypt()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._encrypt()

    def abort(self) -> None:
        self._closing = True
        self._drop_queue()
        self._below.abort()

    # Receiver of the channel below.

    def get_buffer(self) -> memoryview:
        return self._buffer

    def on_received(self, count: int) -> None:
        self._incoming.write(self._buffer[:count])
        if not self._is_handshake_done:
            self._do_handshake()
        if self._is_handshake_done:
            self._decrypt()

    def on_drained(self) -> None:
        self._encrypt()
        if not self._closing and self._receiver is not None and not self.unsent_bytes:
            self._receiver.on_drained()

    def on_closed(self, error: Exception | None) -> None:
        self._closing = True
        self._drop_queue()
        # The channel is in a reference cycle, so it may exist until the next garbage collection.
        self._buffer = _NO_BUFFER
        if self._handshake_deadline is not None:
            self._handshake_deadline.cancel()
            self._handshake_deadline = None
        if not self._is_handshake_done:
            if self._on_handshake is not None:
                self._on_handshake(False)
            self._report_identified(self._failure or error)
        if self._receiver is not None:
            self._receiver.on_closed(self._failure or error)

    # Handshake, encryption and decryption.

    def _do_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._pass_ciphertext()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._is_handshake_done = True
        self._buffer = memoryview(bytearray(_CIPHERTEXT_BUFFER_BYTES))
        if self._on_handshake is not None:
            self._on_handshake(True)
        if self._handshake_deadline is not None:
            self._handshake_deadline.cancel()
            self._handshake_deadline = None
        self._pass_ciphertext()
        self._report_identified(None)
        if self._closing:
            # The client is not accepted.
            return
        if self._paused:
            self._below.pause_reading()
        self._encrypt()

    def _report_identified(self, error: Exception | None) -> None:
        on_identified, self._on_identified = self._on_identified, None
        if on_identified is not None:
            on_identified(error)

    def _on_handshake_timeout(self) -> None:
        self._handshake_deadline = None
        self._failure = HandshakeTimedOut(f"no TLS handshake within {self._timeout_ms} ms")
        self.abort()

    def _schedule_decrypt(self) -> None:
        if self._is_handshake_done and not self._is_decrypt_scheduled:
            self._is_decrypt_scheduled = True
            self._loop.call_soon(self._run_decrypt)

    def _run_decrypt(self) -> None:
        self._is_decrypt_scheduled = False
        self._decrypt()

    def _decrypt(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        budget = _PLAINTEXT_BYTES_PER_WAKE
        while not (self._paused or self._closing):
            if budget <= 0:
                self._schedule_decrypt()
                return
            buffer = receiver.get_buffer()
            try:
                # With a buffer it returns a count, despite its annotation.
                count = cast(int, self._tls.read(len(buffer), buffer))
            except ssl.SSLWantReadError:
                # A key update may have produced bytes to send.
                self._pass_ciphertext()
                return
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self._fail(error)
                return
            if count == 0:
                self.close()
                return
            budget -= count
            receiver.on_received(count)

    def _encrypt(self) -> None:
        """Encrypts as much as the channel below has capacity for; continues when it has drained."""
        queue = self._queue
        try:
            while self._is_handshake_done and queue and self._below.unsent_bytes < _BELOW_BYTES_MAX:
                piece = self._next_piece()
                if not piece:
                    self._failure = OSError("The file ends before the slice to be sent.")
                    self.abort()
                    return
                self._tls.write(piece)
                self._pass_ciphertext()
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._closing and not (self._is_handshake_done and queue):
            self._send_close_notify()

    def _next_piece(self) -> bytes | bytearray | memoryview:
        part = self._queue[0]
        if isinstance(part, FileSlice):
            piece: bytes | memoryview = part.file.pread(min(part.size, _PIECE_BYTES), part.position)
            count = len(piece)
            rest: Part = FileSlice(part.file, part.position + count, part.size - count)
            left = part.size - count
        else:
            view = memoryview(part)
            piece, rest = view[:_PIECE_BYTES], view[_PIECE_BYTES:]
            count, left = len(piece), len(rest)
        if left:
            self._queue[0] = rest
        else:
            self._queue.popleft()
        self._queued_bytes -= count
        return piece

    def _pass_ciphertext(self) -> None:
        if self._outgoing.pending:
            self._below.send((self._outgoing.read(),))

    def _send_close_notify(self) -> None:
        if self._is_handshake_done:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                # The peer's close_notify is not awaited.
                pass
            self._pass_ciphertext()
        self._below.close()

    def _fail(self, error: ssl.SSLError) -> None:
        self._failure = self._failure or error
        self._closing = True
        self._drop_queue()
        # Sends the alert with the reason to the peer.
        self._pass_ciphertext()
        self._below.close()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0


class TlsTransport:
    """Adds TLS to every channel of the transport below. A transport that only listens or only
    connects needs only one of the contexts.

    A context may be replaced at any time: connections whose handshake has started keep theirs.
    """

    __slots__ = ("_below", "client", "handshakes", "handshakes_failed", "server")

    def __init__(
        self,
        below: Transport,
        *,
        server: ssl.SSLContext | None = None,
        client: ssl.SSLContext | None = None,
    ) -> None:
        self._below = below
        self.server = server
        self.client = client
        #: As a server, for the metrics.
        self.handshakes = 0
        self.handshakes_failed = 0

    async def listen(self, address: Address, on_channel: Callable[[Channel], None]) -> Listener:
        assert self.server is not None, "this transport cannot listen"

        def on_plain_channel(channel: Channel) -> None:
            on_channel(
                TlsChannel(
                    channel,
                    self._server_context,
                    server_side=True,
                    on_handshake=self._on_handshake,
                )
            )

        return await self._below.listen(address, on_plain_channel)

    def _on_handshake(self, succeeded: bool) -> None:
        if succeeded:
            self.handshakes += 1
        else:
            self.handshakes_failed += 1

    async def connect(self, address: Address, *, timeout_ms: int) -> Channel:
        channel = await self._below.connect(address, timeout_ms=timeout_ms)
        return TlsChannel(
            channel,
            self._client_context,
            server_side=False,
            server_hostname=address.host,
            handshake_timeout_ms=timeout_ms,
        )

    def _server_context(self) -> ssl.SSLContext:
        assert self.server is not None, "this transport cannot listen"
        return self.server

    def _client_context(self) -> ssl.SSLContext:
        assert self.client is not None, "this transport cannot connect"
        return self.client
