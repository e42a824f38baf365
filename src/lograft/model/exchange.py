"""The interface between a connection and its request handler.

`net/` splits the byte stream into frames and sends replies in order; `api/` turns frames into
replies. Neither imports the other, so the types that both use are defined here.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from lograft.model.errors import LograftError
from lograft.model.seams import Channel, Part


class Timing(Protocol):
    """Measures one request."""

    def on_sent(self) -> None:
        """The operating system has accepted the whole response."""


class EncodedResponse(NamedTuple):
    """One complete response: size, header and body (built by `wire.headers.frame_response`)."""

    parts: Sequence[Part]
    #: The time for which the connection is muted after this response, because the client has
    #: exceeded its quota.
    mute_ms: int = 0
    #: The connection is closed after this response, for example because authentication failed.
    closes: bool = False
    #: None: the request is not measured.
    timing: Timing | None = None


class PendingReply(NamedTuple):
    """A reply that a coroutine completes. Later requests of the connection wait too, unless it
    `allows_pipelining`: then they are handled, and only their responses wait. The coroutine is
    cancelled when the connection closes; it may return None, which sends no response."""

    response: Coroutine[Any, Any, EncodedResponse | None]
    allows_pipelining: bool = False
    #: The coroutine that `response` awaits, if any: both are closed if neither has started.
    inner: Coroutine[Any, Any, Any] | None = None


class DelayedReply:
    """A reply that is completed by a call instead of a task, like a delayed operation in Kafka's
    purgatory: for long polls, of which there may be many, and for acknowledgments. Later requests
    wait, unless it `allows_pipelining`."""

    __slots__ = ()

    allows_pipelining: bool = False

    def begin(self, recheck: Callable[[], None]) -> None:
        """Called once, before anything else runs. The implementation calls `recheck` (in the event
        loop, and not from within `begin`) when `try_complete` may complete the reply."""
        raise NotImplementedError

    def try_complete(self) -> "Reply":
        """Returns the reply, or this object if it is not complete yet. May raise
        CloseConnection."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Called when the connection has closed."""
        raise NotImplementedError


#: Plain bytes are a response in one part that does not mute the connection: the cheapest kind.
Reply: TypeAlias = bytes | EncodedResponse | PendingReply | DelayedReply | None


class CloseConnection(LograftError):
    """The client violated the protocol in a way for which there is no error response. The text is
    written to the log as one line."""


class FrameHandler(Protocol):
    """Handles the requests of one connection."""

    #: Larger frames close the connection. May change between two frames: the limit is lower for
    #: peers that have not identified themselves.
    frame_bytes_max: int
    #: When the frames that are being handled were received; set before they are.
    received_ns: int

    def handle_frame(self, frame: memoryview) -> Reply:
        """`frame` excludes its size, is writable, and is valid only during the call: decode it
        before anything waits. May raise CloseConnection."""

    def on_frames_handled(self) -> None:
        """Called after all frames of one read were handled, before their responses are sent."""

    def on_closed(self) -> None:
        """The last call, after the connection has closed."""


class HandlerFactory(Protocol):
    def __call__(self, channel: Channel) -> FrameHandler: ...
