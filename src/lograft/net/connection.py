"""One connection: receives frames and sends responses in the order of the requests.

A request is handled as soon as its frame is complete, in the loop, without a task. Only a request
that must wait gets a task, and as in Kafka the requests behind it then wait too, unless it allows
pipelining (Produce: it has been appended, only its acknowledgement is outstanding).

Flow control consists of the decision when to read:

    state                                                  | reads
    no request is blocked                                  | yes
    a request waits, no complete frame behind it           | yes: to detect a disconnect
    a request waits, a complete frame behind it            | no
    too many requests in flight, or too many unsent bytes  | no
    muted (client above its quota)                         | no
    queued.max.request.bytes is reached                    | no

A peer can therefore occupy one incomplete frame (bounded by the handler's limit), one read of the
socket, `responses_max` responses and `unsent_bytes_max` plus one response.
"""

import asyncio
import inspect
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from lograft.model.exchange import (
    CloseConnection,
    DelayedReply,
    EncodedResponse,
    FrameHandler,
    PendingReply,
    Timing,
)
from lograft.model.printable_text import printable
from lograft.model.seams import Channel, Clock, FileSlice, Part, Spawn, Task
from lograft.net.closed_connections import INCOMPLETE, TLS, ClosedConnections, cause_of
from lograft.net.errors import HandshakeTimedOut
from lograft.net.frame_memory import FrameBudget
from lograft.net.repeated_warnings import RepeatedWarnings
from lograft.wire.errors import WireError
from lograft.wire.frames import FrameBuffer

#: Responses to pipelined requests are sent in one system call, up to this size.
_GATHER_BYTES: Final = 64 << 10
NANOSECONDS_PER_MS: Final = 1_000_000
#: With more, those of responses that are not sent completely count as sent.
TIMINGS_MAX: Final = 256
_NO_FRAMES: Final[Iterator[memoryview]] = iter(())

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """What one peer may occupy."""

    #: Requests whose response has not been sent yet. Clients keep 1 to 5 in flight (librdkafka
    #: without idempotence more, which then wait in its socket).
    responses_max: int = 128
    #: Above this limit no further request is handled until all bytes have been sent.
    unsent_bytes_max: int = 2 << 20


class _Slot:
    """One request in the order of the responses."""

    __slots__ = ("delayed", "done", "response", "task", "waiting")

    def __init__(
        self,
        response: bytes | EncodedResponse | None = None,
        *,
        waiting: PendingReply | None = None,
        delayed: DelayedReply | None = None,
    ) -> None:
        self.response = response
        self.waiting = waiting
        self.delayed = delayed
        self.done = waiting is None and delayed is None
        self.task: Task | None = None

    @property
    def closes(self) -> bool:
        """Whether the connection is closed after the response."""
        return type(self.response) is EncodedResponse and self.response.closes

    def cancel(self) -> None:
        if self.delayed is not None:
            self.delayed.cancel()
        if self.task is not None:
            self.task.cancel()
        if self.waiting is not None:
            # A coroutine that never started would warn that it was never awaited.
            for work in (self.waiting.response, self.waiting.inner):
                if inspect.iscoroutine(work) and (
                    inspect.getcoroutinestate(work) == inspect.CORO_CREATED
                ):
                    work.close()


class Connection:
    """The Receiver of a channel: handles its frames and sends the responses."""

    __slots__ = (
        "_active_ms",
        "_blocker",
        "_budget",
        "_buffer",
        "_capacity",
        "_channel",
        "_clock",
        "_closed",
        "_closing",
        "_ended",
        "_frames",
        "_frames_since_ms",
        "_handler",
        "_held",
        "_is_saturated",
        "_limits",
        "_name",
        "_on_ended",
        "_out",
        "_out_bytes",
        "_slots",
        "_spawn",
        "_swept_ms",
        "_timings",
        "_unmute",
        "_unsent_seen",
        "_warnings",
    )

    def __init__(
        self,
        channel: Channel,
        handler: FrameHandler,
        *,
        name: str,
        clock: Clock,
        spawn: Spawn,
        limits: FlowLimits,
        budget: FrameBudget,
        on_ended: Callable[["Connection"], None],
        warnings: RepeatedWarnings,
        closed: ClosedConnections,
    ) -> None:
        """`budget`, `warnings` and `closed` are shared with other connections."""
        self._channel = channel
        self._handler = handler
        self._name = name
        self._clock = clock
        self._spawn = spawn
        self._limits = limits
        self._on_ended = on_ended
        self._warnings = warnings
        self._closed = closed
        self._buffer = FrameBuffer(handler.frame_bytes_max)
        self._budget = budget
        #: Buffer capacity last reported to the frame budget.
        self._capacity = 0
        #: Frames of the last read that have not been handled yet, and the first of them if it has
        #: been taken from the iterator. Invariant: while there are any, nothing is read.
        self._frames: Iterator[memoryview] = _NO_FRAMES
        self._held: memoryview | None = None
        self._slots: deque[_Slot] = deque()
        #: The request in flight that blocks those behind it.
        self._blocker: _Slot | None = None
        self._out: list[Part] = []
        self._out_bytes = 0
        self._is_saturated = False
        self._unmute: asyncio.TimerHandle | None = None
        self._closing = False
        self._ended = False
        self._active_ms = clock.mono_ms()
        #: When the first bytes of the incoming frame were received.
        self._frames_since_ms = self._active_ms
        self._unsent_seen = 0
        self._swept_ms = self._active_ms
        #: Measured requests whose responses have not been passed to the operating system yet.
        self._timings: list[Timing] = []

    def __repr__(self) -> str:
        return f"Connection({self._name} {self._channel.peer}, {len(self._slots)} in flight)"

    @property
    def channel(self) -> Channel:
        return self._channel

    @property
    def active_ms(self) -> int:
        return self._active_ms

    @property
    def is_closing(self) -> bool:
        return self._closing

    def start(self) -> None:
        self._channel.start(self)

    def close(self) -> None:
        """Sends the responses that are ready and drops the others."""
        if not self._closing:
            self._closing = True
            self._flush()
            self._drop_waiting()
            self._channel.close()

    def abort(self) -> None:
        self._channel.abort()

    def sweep(self, now_ms: int, *, idle_ms_max: int) -> bool:
        """Called periodically for every connection; returns whether this one is idle. A peer that
        waits for a response is not idle; a peer that does not read its response is."""
        unsent = self._channel.unsent_bytes
        if unsent != self._unsent_seen or (self._slots and not unsent):
            self._active_ms = now_ms
        self._unsent_seen = unsent
        if self._active_ms < self._swept_ms:
            self.release_memory()
        self._swept_ms = now_ms
        return now_ms - self._active_ms > idle_ms_max

    # FrameHolder: the memory of the incoming frame.

    @property
    def incomplete_since_ms(self) -> int | None:
        return self._frames_since_ms if self._buffer.pending_bytes else None

    def release_memory(self) -> None:
        self._buffer.shrink()
        self._report_capacity()

    def drop_frame(self) -> None:
        self._close_with(
            CloseConnection("A frame has been incomplete for too long, and its memory is needed."),
            INCOMPLETE,
        )
        # The channel may linger to send its last responses, but the memory is needed now.
        self._buffer = FrameBuffer(self._buffer.limit)

    def on_memory_free(self) -> None:
        self._decide_reading()

    def _lacks_memory(self) -> bool:
        """Returns whether the incoming request must wait until others have been handled."""
        size = self._buffer.incomplete_frame_bytes
        if size:
            return not self._budget.admit(self, size)
        if self._held is None and not self._buffer.pending_bytes:
            self._budget.dismiss(self)
        return False

    def _report_capacity(self) -> None:
        capacity = self._buffer.capacity
        if capacity != self._capacity:
            self._capacity = capacity
            self._budget.report_capacity(self, capacity)

    # Receiver of the channel.

    def get_buffer(self) -> memoryview:
        return self._buffer.get_buffer()

    def on_received(self, count: int) -> None:
        now_ns = self._handler.received_ns = self._clock.mono_ns()
        now_ms = self._active_ms = now_ns // NANOSECONDS_PER_MS
        buffer = self._buffer
        if not buffer.pending_bytes:
            self._frames_since_ms = now_ms
        self._frames = buffer.add_received(count)
        if buffer.capacity != self._capacity:
            self._report_capacity()
        self._handle_frames()

    def on_drained(self) -> None:
        if self._timings:
            self._on_sent()
        if self._is_saturated:
            self._is_saturated = False
            self._handle_frames()

    def on_closed(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._closing = self._ended = True
        if isinstance(error, ssl.SSLError | HandshakeTimedOut):
            self._closed.add(TLS)
            self._log_closed(str(error))
        self._drop_waiting()
        self._frames, self._held = _NO_FRAMES, None
        # Not left to the garbage collector: hostile peers may connect faster than it runs.
        self._buffer.release()
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self._budget.report_capacity(self, 0)
        if self._budget.request_bytes_max > 0:
            self._budget.dismiss(self)
        self._handler.on_closed()
        self._on_ended(self)

    # Frames and responses.

    def _handle_frames(self) -> None:
        handler = self._handler
        out, slots = self._out, self._slots
        may_continue = not self._is_blocked()
        try:
            while may_continue:
                frame = self._held
                if frame is None:
                    frame = next(self._frames, None)
                    if frame is None:
                        break
                else:
                    self._held = None
                self._frames_since_ms = self._active_ms
                reply = handler.handle_frame(frame)
                if handler.frame_bytes_max != self._buffer.limit:
                    self._buffer.limit = handler.frame_bytes_max
                if type(reply) is bytes and not slots:
                    # By far the most frequent case: only the output changes.
                    out.append(reply)
                    self._out_bytes += len(reply)
                    if self._out_bytes <= _GATHER_BYTES:
                        continue
                    self._flush()
                elif type(reply) is bytes or type(reply) is EncodedResponse:
                    if slots:
                        slots.append(slot := _Slot(reply))
                        if slot.closes:
                            self._blocker = slot
                    else:
                        self._put(reply)
                elif isinstance(reply, DelayedReply):
                    self._delay(reply)
                elif reply is not None:
                    assert isinstance(reply, PendingReply)
                    self._wait_for(reply)
                out = self._out
                may_continue = not self._is_blocked()
            handler.on_frames_handled()
            self._flush()
            self._decide_reading()
        except (WireError, CloseConnection) as error:
            self._close_with(error)
        except Exception as error:
            # A bug in a handler closes its connection, but does not stop the node.
            LOGGER.exception("%s: failed to handle a request of %s", self._name, self._channel.peer)
            self._close_with(error)

    def _is_blocked(self) -> bool:
        return (
            self._blocker is not None
            or self._is_saturated
            or self._unmute is not None
            or self._closing
            or len(self._slots) >= self._limits.responses_max
        )

    def _decide_reading(self) -> None:
        if self._closing:
            return
        lacks_memory = self._budget.request_bytes_max > 0 and self._lacks_memory()
        if lacks_memory:
            self._channel.pause_reading()
            return
        if not self._is_blocked():
            self._channel.resume_reading()
            return
        if self._held is None:
            self._held = next(self._frames, None)
        only_waits = self._blocker is not None and not self._is_saturated and self._unmute is None
        if only_waits and self._held is None:
            self._channel.resume_reading()
        else:
            self._channel.pause_reading()

    def _delay(self, delayed: DelayedReply) -> None:
        slot = _Slot(delayed=delayed)
        self._slots.append(slot)
        if not delayed.allows_pipelining:
            self._blocker = slot
        delayed.begin(partial(self._on_recheck, slot))

    def _on_recheck(self, slot: _Slot) -> None:
        """Sends the response of a delayed request if it is complete now."""
        if (
            not self._closing
            and slot.delayed is not None
            and self._try_complete(slot, slot.delayed)
        ):
            self._on_done(slot)

    def _try_complete(self, slot: _Slot, delayed: DelayedReply) -> bool:
        try:
            reply = delayed.try_complete()
        except (WireError, CloseConnection) as error:
            self._close_with(error)
            return False
        except Exception as error:
            LOGGER.exception("%s: failed to handle a request of %s", self._name, self._channel.peer)
            self._close_with(error)
            return False
        if reply is delayed:
            return False
        slot.delayed = None
        if isinstance(reply, DelayedReply):
            slot.delayed = reply
            reply.begin(partial(self._on_recheck, slot))
            return False
        if isinstance(reply, PendingReply):
            slot.waiting = reply
            self._start(slot, reply)
            return False
        slot.response = reply
        slot.done = True
        return True

    def _wait_for(self, reply: PendingReply) -> None:
        slot = _Slot(waiting=reply)
        self._slots.append(slot)
        if not reply.allows_pipelining:
            self._blocker = slot
        self._start(slot, reply)

    def _start(self, slot: _Slot, reply: PendingReply) -> None:
        work = self._run(slot, reply)
        try:
            slot.task = self._spawn(work, name=self._name)
        except RuntimeError:
            # The node's task group is ending and accepts no more tasks.
            work.close()
            self.close()

    async def _run(self, slot: _Slot, reply: PendingReply) -> None:
        try:
            slot.response = await reply.response
        except CloseConnection as error:
            self._close_with(error)
            return
        except Exception as error:
            LOGGER.exception("%s: failed to handle a request of %s", self._name, self._channel.peer)
            self._close_with(error)
            return
        except asyncio.CancelledError:
            # The connection or the awaited operation has ended: there will be no response, and the
            # requests behind this one must not wait forever.
            self.close()
            raise
        self._on_done(slot)

    def _on_done(self, slot: _Slot) -> None:
        slot.done = True
        if slot.closes:
            # It may have to wait for earlier responses, but no later request is handled.
            self._blocker = slot
        elif self._blocker is slot:
            self._blocker = None
        slots = self._slots
        while slots:
            first = slots[0]
            if not first.done:
                # What completed the previous request may complete this one too; both are then sent
                # together.
                delayed = first.delayed
                if (
                    delayed is None
                    or not delayed.allows_pipelining
                    or not self._try_complete(first, delayed)
                ):
                    break
                if self._closing:
                    return
            slots.popleft()
            if first.response is not None:
                self._put(first.response)
                if self._closing:
                    return
        self._handle_frames()

    def _put(self, response: bytes | EncodedResponse) -> None:
        if type(response) is bytes:
            self._out.append(response)
            self._out_bytes += len(response)
            if self._out_bytes > _GATHER_BYTES:
                self._flush()
            return
        assert isinstance(response, EncodedResponse)
        for part in response.parts:
            self._out_bytes += part.size if type(part) is FileSlice else len(part)
        self._out.extend(response.parts)
        if response.timing is not None:
            self._timings.append(response.timing)
        if self._out_bytes > _GATHER_BYTES:
            self._flush()
        if response.closes:
            self._frames, self._held = _NO_FRAMES, None
            self.close()
            return
        if response.mute_ms > 0:
            self._mute(response.mute_ms)

    def _mute(self, mute_ms: int) -> None:
        """Pipelined requests may each mute the connection: it stays muted for the longest time."""
        self._closed.throttled += 1
        loop = asyncio.get_running_loop()
        if self._unmute is not None:
            if self._unmute.when() >= loop.time() + mute_ms / 1000:
                return
            self._unmute.cancel()
        self._unmute = loop.call_later(mute_ms / 1000, self._on_unmuted)

    def _flush(self) -> None:
        if self._out:
            parts, self._out = self._out, []
            self._out_bytes = 0
            self._channel.send(parts)
            if self._timings:
                self._on_sent()
            if self._channel.unsent_bytes > self._limits.unsent_bytes_max:
                self._is_saturated = True

    def _on_sent(self) -> None:
        if self._channel.unsent_bytes and len(self._timings) < TIMINGS_MAX:
            # Called again when the channel has drained.
            return
        timings, self._timings = self._timings, []
        for timing in timings:
            timing.on_sent()

    def _on_unmuted(self) -> None:
        self._unmute = None
        self._handle_frames()

    # Closing.

    def _drop_waiting(self) -> None:
        self._blocker = None
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.cancel()

    def _close_with(self, error: Exception, cause: str = "") -> None:
        if not self._closing:
            self._closed.add(cause or cause_of(error))
            self._log_closed(str(error) if isinstance(error, WireError | CloseConnection) else "")
            self._frames, self._held = _NO_FRAMES, None
            self.close()

    def _log_closed(self, reason: str) -> None:
        if reason:
            self._warnings.warn(
                "%s: closed the connection of %s: %s",
                self._name,
                self._channel.peer,
                printable(reason),
            )
