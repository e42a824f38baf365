"""What a connection and its handler say to each other.

`net/` cuts frames and sends replies in order, `api/` makes replies of frames; neither imports the
other, so their words live here.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from lograft.model.errors import LograftError
from lograft.model.seams import Channel, Part


class Answer(NamedTuple):
    """One whole response: length, header, body (`wire.headers.frame_response` makes it)."""

    parts: Sequence[Part]
    #: How long the connection reads nothing after this answer: a client above its quota.
    mute_ms: int = 0


class Waiting(NamedTuple):
    """The answer is not there yet. Requests behind this one wait too, unless it `lets_next`:
    then they are handled meanwhile and only their answers wait. The coroutine is cancelled when
    the connection ends; it may end without an answer."""

    answer: Coroutine[Any, Any, Answer | None]
    lets_next: bool = False
    #: What `answer` awaits, if that is a coroutine too: both are dropped when neither has begun.
    inner: Coroutine[Any, Any, Any] | None = None


class Parked:
    """An answer that comes by a call instead of a task: for long polls, of which there may be many,
    and for acknowledgements. Requests behind it wait, unless it `lets_next`."""

    __slots__ = ()

    lets_next: bool = False

    def begin(self, look: Callable[[], None]) -> None:
        """Called once, before anything else runs. `look` is to be called, by the loop and not
        from inside `begin`, when `answer` may have something to say."""
        raise NotImplementedError

    def answer(self) -> "Reply":
        """What came of it; itself as long as there is nothing. May raise CloseConnection."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The connection has ended."""
        raise NotImplementedError


#: Plain bytes are an Answer of one part that mutes nobody: the cheapest kind.
Reply: TypeAlias = bytes | Answer | Waiting | Parked | None


class CloseConnection(LograftError):
    """The peer broke the protocol in a way that has no error response. The text goes to the log,
    in one line."""


class FrameHandler(Protocol):
    """One connection's requests."""

    #: Larger frames close the connection. May change between two frames: a peer that has not said
    #: who it is gets less room.
    frame_bytes_max: int

    def handle_frame(self, frame: memoryview) -> Reply:
        """The frame, without its length, is writable and valid only during the call: decode it
        before anything waits. May raise CloseConnection."""

    def on_frames_handled(self) -> None:
        """All frames of a read are handled; their answers are about to leave."""

    def on_closed(self) -> None:
        """The last call."""


class HandlerFactory(Protocol):
    def __call__(self, channel: Channel) -> FrameHandler: ...
