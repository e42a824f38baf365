"""TLS as a stage between a channel and its receiver: SSLObject with two memory buffers, no socket.

Works over any Channel, the simulated one too. Slices of files are read in pieces and encrypted only
when the channel below has room, so a slow peer costs no more memory than with plain sockets.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from lograft.model.seams import Address, Channel, FileSlice, Listener, Part, Receiver, Transport
from lograft.net.errors import HandshakeTimedOut

_CIPHERTEXT_BUFFER_BYTES: Final = 64 << 10
#: Encrypted at a time; and encryption waits while the channel below holds this much.
_PIECE_BYTES: Final = 128 << 10
_BELOW_BYTES_MAX: Final = 256 << 10
#: One connection's share of a wake-up.
_PLAINTEXT_BYTES_PER_WAKE: Final = 1 << 20
HANDSHAKE_TIMEOUT_MS: Final = 10_000


class TlsChannel:
    """A Channel for the receiver above, the Receiver of the channel below."""

    __slots__ = (
        "_below",
        "_buffer",
        "_closing",
        "_context",
        "_decrypts_later",
        "_failure",
        "_handshake_deadline",
        "_incoming",
        "_loop",
        "_outgoing",
        "_paused",
        "_queue",
        "_queued_bytes",
        "_receiver",
        "_server_hostname",
        "_server_side",
        "_shaken",
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
    ) -> None:
        """`context` is called once, by `start`: connections that a node accepts before it is ready
        wait, and then get the certificate of that time."""
        self._below = below
        self._context = context
        self._server_side = server_side
        self._server_hostname = server_hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject
        self._loop = asyncio.get_running_loop()
        self._timeout_ms = handshake_timeout_ms
        self._handshake_deadline: asyncio.TimerHandle | None = None
        self._buffer = memoryview(bytearray(_CIPHERTEXT_BUFFER_BYTES))
        self._receiver: Receiver | None = None
        self._queue: deque[Part] = deque()
        self._queued_bytes = 0
        self._shaken = False
        self._paused = False
        self._closing = False
        #: A turn of decrypting is already with the loop.
        self._decrypts_later = False
        self._failure: Exception | None = None

    # The channel of the receiver above.

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
        """DER; None before the handshake or when the peer showed none."""
        return self._tls.getpeercert(binary_form=True) if self._shaken else None

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._tls = self._context().wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._server_side,
            server_hostname=self._server_hostname,
        )
        self._handshake_deadline = self._loop.call_later(
            self._timeout_ms / 1000, self._on_handshake_late
        )
        self._below.start(self)
        self._shake_hands()

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
            # The handshake needs to read whatever the receiver above wants.
            if self._shaken:
                self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._below.resume_reading()
            self._decrypt_later()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._encrypt()

    def abort(self) -> None:
        self._closing = True
        self._drop_queue()
        self._below.abort()

    # The receiver of the channel below.

    def get_buffer(self) -> memoryview:
        return self._buffer

    def on_received(self, count: int) -> None:
        self._incoming.write(self._buffer[:count])
        if not self._shaken:
            self._shake_hands()
        if self._shaken:
            self._decrypt()

    def on_drained(self) -> None:
        self._encrypt()
        if not self._closing and self._receiver is not None and not self.unsent_bytes:
            self._receiver.on_drained()

    def on_closed(self, error: Exception | None) -> None:
        self._closing = True
        self._drop_queue()
        if self._handshake_deadline is not None:
            self._handshake_deadline.cancel()
            self._handshake_deadline = None
        if self._receiver is not None:
            self._receiver.on_closed(self._failure or error)

    # The stage itself.

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._pass_ciphertext()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._shaken = True
        if self._handshake_deadline is not None:
            self._handshake_deadline.cancel()
            self._handshake_deadline = None
        self._pass_ciphertext()
        if self._paused:
            self._below.pause_reading()
        self._encrypt()

    def _on_handshake_late(self) -> None:
        self._handshake_deadline = None
        self._failure = HandshakeTimedOut(f"no TLS handshake within {self._timeout_ms} ms")
        self.abort()

    def _decrypt_later(self) -> None:
        if self._shaken and not self._decrypts_later:
            self._decrypts_later = True
            self._loop.call_soon(self._decrypt_turn)

    def _decrypt_turn(self) -> None:
        self._decrypts_later = False
        self._decrypt()

    def _decrypt(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        budget = _PLAINTEXT_BYTES_PER_WAKE
        while not (self._paused or self._closing):
            if budget <= 0:
                self._decrypt_later()
                return
            buffer = receiver.get_buffer()
            try:
                # With a buffer it returns a count, whatever its annotation says.
                count = cast(int, self._tls.read(len(buffer), buffer))
            except ssl.SSLWantReadError:
                # A key update may have left something to say.
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
        """Feeds the channel below as far as it has room; goes on when that has drained."""
        queue = self._queue
        try:
            while self._shaken and queue and self._below.unsent_bytes < _BELOW_BYTES_MAX:
                piece = self._next_piece()
                if not piece:
                    self._failure = OSError("file ends before its slice")
                    self.abort()
                    return
                self._tls.write(piece)
                self._pass_ciphertext()
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._closing and not (self._shaken and queue):
            self._say_goodbye()

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

    def _say_goodbye(self) -> None:
        if self._shaken:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                # The peer's own goodbye is not waited for.
                pass
            self._pass_ciphertext()
        self._below.close()

    def _fail(self, error: ssl.SSLError) -> None:
        self._failure = self._failure or error
        self._closing = True
        self._drop_queue()
        # The alert that tells the peer why.
        self._pass_ciphertext()
        self._below.close()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0


class TlsTransport:
    """Every channel of the transport below, with TLS. A transport that only listens or only
    connects needs only one of the contexts.

    A context may be replaced at any time: connections whose handshake has begun keep theirs.
    """

    __slots__ = ("_below", "client", "server")

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

    async def listen(self, address: Address, on_channel: Callable[[Channel], None]) -> Listener:
        assert self.server is not None, "this transport cannot listen"

        def on_plain_channel(channel: Channel) -> None:
            on_channel(TlsChannel(channel, self._server_context, server_side=True))

        return await self._below.listen(address, on_plain_channel)

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
