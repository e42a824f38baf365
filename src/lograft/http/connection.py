"""One HTTP/1.1 connection: h11 parses and writes, the application is called as in ASGI.

One request at a time: bytes behind it wait in the socket. What a client can make the node hold is
one read of the socket, a header of `HEADER_BYTES_MAX`, `BODY_BYTES_HELD_MAX` of a body that the
application has not read, and `UNSENT_BYTES_MAX` plus one part of a response. A client that does not
send its request or read the response in time is disconnected.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import h11

from lograft.model.seams import Channel, Spawn, Task

ASGIMessage = MutableMapping[str, Any]
Application = Callable[
    [
        dict[str, Any],
        Callable[[], Awaitable[ASGIMessage]],
        Callable[[ASGIMessage], Awaitable[None]],
    ],
    Awaitable[None],
]

READ_BYTES: Final = 16 << 10
HEADER_BYTES_MAX: Final = 16 << 10
BODY_BYTES_HELD_MAX: Final = 64 << 10
UNSENT_BYTES_MAX: Final = 256 << 10
#: Time to receive the header of a request, once its first byte has arrived.
HEAD_TIMEOUT_S: Final = 10.0
#: Time between two parts of a body that the application waits for.
BODY_TIMEOUT_S: Final = 30.0
#: Time between two requests of a connection.
IDLE_TIMEOUT_S: Final = 75.0
#: Time without progress while a response is sent.
SEND_TIMEOUT_S: Final = 30.0

LOGGER: Final = logging.getLogger(__name__)


class HttpConnection:
    """The Receiver of a channel."""

    def __init__(
        self,
        channel: Channel,
        load_application: Callable[[], Awaitable[Application]],
        *,
        spawn: Spawn,
        scheme: str,
        on_ended: Callable[["HttpConnection"], None],
    ) -> None:
        self.channel = channel
        self._load_application = load_application
        self._spawn = spawn
        self._scheme = scheme
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        self._task: Task | None = None
        #: Parts of the request's body that the application has not read.
        self._body: deque[bytes] = deque()
        self._body_bytes = 0
        self._is_body_complete = False
        #: The application has got the last part of the body.
        self._is_body_read = False
        self._awaits_body = False
        #: A response to HEAD has no body, whatever the application sends.
        self._is_head = False
        self._is_closed = False
        #: Set when the condition that `receive` or `send` of the application waits for may hold.
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun_head = False
        self._unsent_seen = 0

    def start(self) -> None:
        self._set_timer(HEAD_TIMEOUT_S)
        self.channel.start(self)

    def close(self) -> None:
        self.channel.close()

    def abort(self) -> None:
        self.channel.abort()

    # ── the channel's calls ──────────────────────────────────────────────────────────────────

    def get_buffer(self) -> memoryview:
        return self._buffer

    def on_received(self, count: int) -> None:
        if self._task is None and not self._has_begun_head:
            self._has_begun_head = True
            self._set_timer(HEAD_TIMEOUT_S)
        elif self._awaits_body:
            self._set_timer(BODY_TIMEOUT_S)
        self._parser.receive_data(bytes(self._buffer[:count]))
        self._parse_safely()

    def on_drained(self) -> None:
        self._changed.set()

    def on_closed(self, error: Exception | None) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._changed.set()
        self._on_ended(self)

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def _parse_safely(self) -> None:
        try:
            self._parse()
        except h11.RemoteProtocolError as error:
            self._reject(error.error_status_hint or 400)

    def _parse(self) -> None:
        """Takes the events of what was received, until the next one needs more bytes or has to wait
        for the response."""
        while not self._is_closed:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                return
            if event is h11.PAUSED:
                self.channel.pause_reading()
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
                self._body_bytes += len(event.data)
                if self._body_bytes >= BODY_BYTES_HELD_MAX:
                    self.channel.pause_reading()
                self._changed.set()
            elif isinstance(event, h11.EndOfMessage):
                self._is_body_complete = True
                self._changed.set()
            else:
                self.channel.close()
                return

    def _begin(self, request: h11.Request) -> None:
        self._cancel_timer()
        self._has_begun_head = False
        self._body.clear()
        self._body_bytes = 0
        self._is_body_complete = self._is_body_read = False
        self._is_head = request.method == b"HEAD"
        if self._parser.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
        self._task = self._spawn(self._respond(request), name="HTTP request")

    async def _respond(self, request: h11.Request) -> None:
        try:
            application = await self._load_application()
            await application(self._scope_of(request), self._receive, self._send)
            if self._parser.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
                raise RuntimeError("the application did not complete its response")
        except Exception:
            if self._is_closed:
                return
            LOGGER.exception("%s %s failed", request.method.decode(), request.target.decode())
            if self._parser.our_state is h11.SEND_RESPONSE:
                self._reject(500)
            else:
                self.channel.abort()
            return
        self._task = None
        self._finish_request()

    def _scope_of(self, request: h11.Request) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": self._scheme,
            "path": _unquote_path(path),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": (self.channel.peer.host, self.channel.peer.port),
            "server": (self.channel.local.host, self.channel.local.port),
        }

    async def _receive(self) -> ASGIMessage:
        while self._is_body_read and not self._is_closed:
            await self._wait_changed()
        if not self._body and not self._is_body_complete and not self._is_closed:
            self._awaits_body = True
            self._set_timer(BODY_TIMEOUT_S)
            while not self._body and not self._is_body_complete and not self._is_closed:
                await self._wait_changed()
            self._awaits_body = False
            self._cancel_timer()
        if self._is_closed:
            return {"type": "http.disconnect"}
        part = self._body.popleft() if self._body else b""
        self._body_bytes -= len(part)
        if self._body_bytes < BODY_BYTES_HELD_MAX:
            self.channel.resume_reading()
        self._is_body_read = self._is_body_complete and not self._body
        return {"type": "http.request", "body": part, "more_body": not self._is_body_read}

    async def _send(self, message: ASGIMessage) -> None:
        if message["type"] == "http.response.start":
            headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
            self._write_head(message["status"], headers)
            return
        body = message.get("body", b"")
        if body and not self._is_head:
            self._write(h11.Data(data=body))
        if not message.get("more_body", False):
            self._write(h11.EndOfMessage())
        while self.channel.unsent_bytes > UNSENT_BYTES_MAX and not self._is_closed:
            self._watch_sending()
            await self._wait_changed()
        if not self._is_closed and not self._awaits_body:
            self._cancel_timer()

    def _write_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        reason = HTTPStatus(status).phrase.encode()
        self._write(h11.Response(status_code=status, headers=headers, reason=reason))

    async def _wait_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _write(self, event: h11.Event) -> None:
        parts = self._parser.send_with_data_passthrough(event)
        if parts and not self._is_closed:
            self.channel.send([part for part in parts if part])

    def _finish_request(self) -> None:
        if self._is_closed:
            return
        if self._parser.their_state is not h11.DONE or self._parser.our_state is h11.MUST_CLOSE:
            # The client requested it, or it is still sending a body that nothing reads.
            self.channel.close()
            return
        self._parser.start_next_cycle()
        self._set_timer(IDLE_TIMEOUT_S)
        self.channel.resume_reading()
        # The next request may have been received together with this one.
        self._parse_safely()

    def _reject(self, status: int) -> None:
        """An error response from the server itself, then the end of the connection."""
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_head(status, [(b"content-length", b"0"), (b"connection", b"close")])
            self._write(h11.EndOfMessage())
        self.channel.close()

    # ── timeouts ─────────────────────────────────────────────────────────────────────────────

    def _set_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, self.channel.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_sending(self) -> None:
        """Disconnects a client that takes no byte of the response for a while."""
        self._unsent_seen = self.channel.unsent_bytes
        self._cancel_timer()
        self._timer = self._loop.call_later(SEND_TIMEOUT_S, self._check_sending)

    def _check_sending(self) -> None:
        if self.channel.unsent_bytes >= self._unsent_seen:
            self.channel.abort()
        elif self.channel.unsent_bytes:
            self._watch_sending()


def _unquote_path(path: bytes) -> str:
    return unquote_to_bytes(path).decode(errors="replace")
