"""One connection: frames in, answers out in the order of the requests.

A request is handled the moment its frame is whole, on the loop, without a task. Only one that must
wait gets a task, and as in Kafka it then holds back the requests behind it, unless it lets them
pass (Produce: its append has already happened, only its acknowledgement is outstanding).

When to read is the whole of the flow control:

    state                                        | reads on?
    nothing held back                            | yes
    a request waits, no whole frame behind it    | yes: that is how a disconnect is noticed
    a request waits, a whole frame behind it     | no
    too many answers under way, or unsent bytes  | no
    muted (client above its quota)               | no
    queued.max.request.bytes are in use          | no

So a peer can make us hold: one incomplete frame (bounded by the handler's limit), one read of the
socket, `answers_max` answers under way and `unsent_bytes_max` plus one answer.
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
)
from lograft.model.printable_text import printable
from lograft.model.seams import Channel, Clock, FileSlice, Part, Spawn, Task
from lograft.net.errors import HandshakeTimedOut
from lograft.net.frame_memory import FrameBudget
from lograft.net.repeated_warnings import RepeatedWarnings
from lograft.wire.errors import WireError
from lograft.wire.frames import FrameBuffer

#: Answers of pipelined requests leave together in one system call, up to this much.
_GATHER_BYTES: Final = 64 << 10
_NO_FRAMES: Final[Iterator[memoryview]] = iter(())

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """What one peer may make us hold."""

    #: Requests whose answer is not sent yet. Clients keep 1 to 5 under way (librdkafka without
    #: idempotence more, which then waits in its socket).
    answers_max: int = 128
    #: Above this the connection handles no further request until all of it has gone.
    unsent_bytes_max: int = 2 << 20


class _Slot:
    """The place of one request in the order of answers."""

    __slots__ = ("answer", "done", "parked", "task", "waiting")

    def __init__(
        self,
        answer: bytes | EncodedResponse | None = None,
        *,
        waiting: PendingReply | None = None,
        parked: DelayedReply | None = None,
    ) -> None:
        self.answer = answer
        self.waiting = waiting
        self.parked = parked
        self.done = waiting is None and parked is None
        self.task: Task | None = None

    def cancel(self) -> None:
        if self.parked is not None:
            self.parked.cancel()
        if self.task is not None:
            self.task.cancel()
        if self.waiting is not None:
            # A coroutine that never began would complain that nobody awaited it.
            for work in (self.waiting.response, self.waiting.inner):
                if inspect.iscoroutine(work) and (
                    inspect.getcoroutinestate(work) == inspect.CORO_CREATED
                ):
                    work.close()


class Connection:
    """The Receiver of a channel."""

    __slots__ = (
        "_active_ms",
        "_blocker",
        "_budget",
        "_buffer",
        "_capacity",
        "_channel",
        "_clock",
        "_clogged",
        "_closing",
        "_ended",
        "_frames",
        "_frames_since_ms",
        "_handler",
        "_held",
        "_limits",
        "_name",
        "_on_ended",
        "_out",
        "_out_bytes",
        "_slots",
        "_spawn",
        "_swept_ms",
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
    ) -> None:
        """`budget` and `warnings` are shared with other connections."""
        self._channel = channel
        self._handler = handler
        self._name = name
        self._clock = clock
        self._spawn = spawn
        self._limits = limits
        self._on_ended = on_ended
        self._warnings = warnings
        self._buffer = FrameBuffer(handler.frame_bytes_max)
        self._budget = budget
        #: Of the buffer, as the budget knows it.
        self._capacity = 0
        #: Frames of the last read that are not handled yet, and the first of them if it was
        #: looked at. Invariant: while there is one, nothing is read.
        self._frames: Iterator[memoryview] = _NO_FRAMES
        self._held: memoryview | None = None
        self._slots: deque[_Slot] = deque()
        #: The waiting request that holds back those behind it.
        self._blocker: _Slot | None = None
        self._out: list[Part] = []
        self._out_bytes = 0
        self._clogged = False
        self._unmute: asyncio.TimerHandle | None = None
        self._closing = False
        self._ended = False
        self._active_ms = clock.mono_ms()
        #: When the first bytes of the frame that is coming in were there.
        self._frames_since_ms = self._active_ms
        self._unsent_seen = 0
        self._swept_ms = self._active_ms

    def __repr__(self) -> str:
        return f"Connection({self._name} {self._channel.peer}, {len(self._slots)} under way)"

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
        """Sends what is ready, drops what still waits."""
        if not self._closing:
            self._closing = True
            self._flush()
            self._drop_waiting()
            self._channel.close()

    def abort(self) -> None:
        self._channel.abort()

    def sweep(self, now_ms: int, *, idle_ms_max: int) -> bool:
        """Called now and then for every connection; says whether this one is idle. A peer that
        waits for an answer is not, one that does not take its answer is."""
        unsent = self._channel.unsent_bytes
        if unsent != self._unsent_seen or (self._slots and not unsent):
            self._active_ms = now_ms
        self._unsent_seen = unsent
        if self._active_ms < self._swept_ms:
            self.give_back_memory()
        self._swept_ms = now_ms
        return now_ms - self._active_ms > idle_ms_max

    # The holder of an incoming frame.

    @property
    def incomplete_since_ms(self) -> int | None:
        return self._frames_since_ms if self._buffer.pending_bytes else None

    def give_back_memory(self) -> None:
        self._buffer.shrink()
        self._report_capacity()

    def give_up_frame(self) -> None:
        self._close_bad(CloseConnection("a frame is incomplete for too long, its memory is needed"))
        # The channel may linger to send its last answers, the memory may not.
        self._buffer = FrameBuffer(self._buffer.limit)

    def on_memory_free(self) -> None:
        self._decide_reading()

    def _lacks_memory(self) -> bool:
        """Whether the request that is coming in must wait for others to be handled."""
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
            self._budget.changed(self, capacity)

    # The receiver of the channel.

    def get_buffer(self) -> memoryview:
        return self._buffer.get_buffer()

    def on_received(self, count: int) -> None:
        now_ms = self._active_ms = self._clock.mono_ms()
        buffer = self._buffer
        if not buffer.pending_bytes:
            self._frames_since_ms = now_ms
        self._frames = buffer.received(count)
        if buffer.capacity != self._capacity:
            self._report_capacity()
        self._handle_frames()

    def on_drained(self) -> None:
        if self._clogged:
            self._clogged = False
            self._handle_frames()

    def on_closed(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._closing = self._ended = True
        if isinstance(error, ssl.SSLError | HandshakeTimedOut):
            self._log_bad(str(error))
        self._drop_waiting()
        self._frames, self._held = _NO_FRAMES, None
        # Not left to the collector: hostile peers come faster than it does.
        self._buffer.release()
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self._budget.changed(self, 0)
        if self._budget.request_bytes_max > 0:
            self._budget.dismiss(self)
        self._handler.on_closed()
        self._on_ended(self)

    # From frames to answers.

    def _handle_frames(self) -> None:
        handler = self._handler
        out, slots = self._out, self._slots
        may_go_on = not self._is_held_back()
        try:
            while may_go_on:
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
                    # By far the most frequent: nothing changes but what is to be sent.
                    out.append(reply)
                    self._out_bytes += len(reply)
                    if self._out_bytes <= _GATHER_BYTES:
                        continue
                    self._flush()
                elif type(reply) is bytes or type(reply) is EncodedResponse:
                    if slots:
                        slots.append(_Slot(reply))
                    else:
                        self._put(reply)
                elif isinstance(reply, DelayedReply):
                    self._park(reply)
                elif reply is not None:
                    assert isinstance(reply, PendingReply)
                    self._wait_for(reply)
                out = self._out
                may_go_on = not self._is_held_back()
            handler.on_frames_handled()
            self._flush()
            self._decide_reading()
        except (WireError, CloseConnection) as error:
            self._close_bad(error)
        except Exception as error:
            # A bug in a handler costs its connection, not the node.
            LOGGER.exception("%s: a request of %s failed", self._name, self._channel.peer)
            self._close_bad(error)

    def _is_held_back(self) -> bool:
        return (
            self._blocker is not None
            or self._clogged
            or self._unmute is not None
            or self._closing
            or len(self._slots) >= self._limits.answers_max
        )

    def _decide_reading(self) -> None:
        if self._closing:
            return
        lacks_memory = self._budget.request_bytes_max > 0 and self._lacks_memory()
        if lacks_memory:
            self._channel.pause_reading()
            return
        if not self._is_held_back():
            self._channel.resume_reading()
            return
        if self._held is None:
            self._held = next(self._frames, None)
        only_waits = self._blocker is not None and not self._clogged and self._unmute is None
        if only_waits and self._held is None:
            self._channel.resume_reading()
        else:
            self._channel.pause_reading()

    def _park(self, parked: DelayedReply) -> None:
        slot = _Slot(parked=parked)
        self._slots.append(slot)
        if not parked.allows_pipelining:
            self._blocker = slot
        parked.begin(partial(self._on_look, slot))

    def _on_look(self, slot: _Slot) -> None:
        """A parked request may have come to its end."""
        if not self._closing and slot.parked is not None and self._has_ended(slot, slot.parked):
            self._on_done(slot)

    def _has_ended(self, slot: _Slot, parked: DelayedReply) -> bool:
        try:
            reply = parked.try_complete()
        except (WireError, CloseConnection) as error:
            self._close_bad(error)
            return False
        except Exception as error:
            LOGGER.exception("%s: a request of %s failed", self._name, self._channel.peer)
            self._close_bad(error)
            return False
        if reply is parked:
            return False
        slot.parked = None
        if isinstance(reply, DelayedReply):
            slot.parked = reply
            reply.begin(partial(self._on_look, slot))
            return False
        if isinstance(reply, PendingReply):
            slot.waiting = reply
            self._start(slot, reply)
            return False
        slot.answer = reply
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
            # The node's task group ends and takes no one in.
            work.close()
            self.close()

    async def _run(self, slot: _Slot, reply: PendingReply) -> None:
        try:
            slot.answer = await reply.response
        except CloseConnection as error:
            self._close_bad(error)
            return
        except Exception as error:
            LOGGER.exception("%s: a request of %s failed", self._name, self._channel.peer)
            self._close_bad(error)
            return
        except asyncio.CancelledError:
            # Either the connection has ended, or whatever was waited for has: no answer will come,
            # and those behind it may not wait for ever.
            self.close()
            raise
        self._on_done(slot)

    def _on_done(self, slot: _Slot) -> None:
        slot.done = True
        if self._blocker is slot:
            self._blocker = None
        slots = self._slots
        while slots:
            first = slots[0]
            if not first.done:
                # What ended the one before may have ended this one too: their answers go together.
                parked = first.parked
                if (
                    parked is None
                    or not parked.allows_pipelining
                    or not self._has_ended(first, parked)
                ):
                    break
                if self._closing:
                    return
            slots.popleft()
            if first.answer is not None:
                self._put(first.answer)
        self._handle_frames()

    def _put(self, answer: bytes | EncodedResponse) -> None:
        if type(answer) is bytes:
            self._out.append(answer)
            self._out_bytes += len(answer)
            if self._out_bytes > _GATHER_BYTES:
                self._flush()
            return
        assert isinstance(answer, EncodedResponse)
        for part in answer.parts:
            self._out_bytes += part.size if type(part) is FileSlice else len(part)
        self._out.extend(answer.parts)
        if self._out_bytes > _GATHER_BYTES:
            self._flush()
        if answer.mute_ms > 0 and self._unmute is None:
            self._unmute = asyncio.get_running_loop().call_later(
                answer.mute_ms / 1000, self._on_unmuted
            )

    def _flush(self) -> None:
        if self._out:
            parts, self._out = self._out, []
            self._out_bytes = 0
            self._channel.send(parts)
            if self._channel.unsent_bytes > self._limits.unsent_bytes_max:
                self._clogged = True

    def _on_unmuted(self) -> None:
        self._unmute = None
        self._handle_frames()

    # The end.

    def _drop_waiting(self) -> None:
        self._blocker = None
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.cancel()

    def _close_bad(self, error: Exception) -> None:
        if not self._closing:
            self._log_bad(str(error) if isinstance(error, WireError | CloseConnection) else "")
            self._frames, self._held = _NO_FRAMES, None
            self.close()

    def _log_bad(self, reason: str) -> None:
        if reason:
            self._warnings.warn(
                "%s: closed the connection of %s: %s",
                self._name,
                self._channel.peer,
                printable(reason),
            )
