"""Ctrl-C, SIGTERM and SIGHUP stop a command cleanly.

The signal cancels the command, so that consumers leave their groups and producers flush. A second
signal ends the process immediately.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The exit code of a command that a signal stopped is this plus the signal's number.
EXIT_CODE_BASE: Final = 128


class Interrupted(BaseException):
    """A signal stopped the command. Not an Exception: only the entry point and commands
    that end with a signal handle it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number
        self.exit_code = EXIT_CODE_BASE + number


class OutputGuard:
    """A context manager around each write to stdout, which blocks the event loop if the reader of
    the pipe is slow. In it, a signal raises Interrupted instead of cancelling the command.

    Otherwise the cancellation would wait for the write. If that then failed because the same signal
    also ended the reader (Ctrl-C in a pipeline), the cancellation would hit the cleanup of the
    command: its consumer would not leave the group.
    """

    __slots__ = ("_is_writing", "is_ending", "pending")

    def __init__(self) -> None:
        self._is_writing = False
        #: The signal that the command must still handle; 0 if there is none.
        self.pending = 0
        #: Whether an exception ends the command already, so that it is not cancelled as well.
        self.is_ending = False

    def __enter__(self) -> None:
        if self.pending:
            self._interrupt(self.pending)
        self._is_writing = True

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._is_writing = False
        self.is_ending |= isinstance(error, BrokenPipeError)

    def reset(self) -> None:
        """A new command starts."""
        self.pending = 0
        self.is_ending = False

    def on_signal(self, number: int) -> None:
        self.pending = number
        if self._is_writing:
            self._interrupt(number)

    def _interrupt(self, number: int) -> None:
        self.pending = 0
        self.is_ending = True
        raise Interrupted(number)


#: There is one stdout.
output_guard: Final = OutputGuard()


def cancel_on_signals(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Returns a coroutine that runs `work` and raises Interrupted if a signal stopped it. If the
    cleanup of `work` fails (records could not be flushed, for example), that error is raised
    instead. Call it before the event loop runs, which installs a handler for SIGINT."""
    if threading.current_thread() is not threading.main_thread():
        return work
    # A signal that the parent process ignores (nohup) stays ignored.
    default = signal.SIG_DFL, signal.default_int_handler
    numbers = [number for number in SIGNALS if signal.getsignal(number) in default]
    return _cancel_on(numbers, work)


async def _cancel_on(numbers: list[signal.Signals], work: Coroutine[Any, Any, T]) -> T:
    output_guard.reset()
    received: list[int] = []
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def handle(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for installed in numbers:
            signal.signal(installed, signal.SIG_DFL)
        output_guard.on_signal(number)
        # Not immediately: before the command waits the next time, it may write.
        loop.call_soon_threadsafe(cancel)

    def cancel() -> None:
        if not output_guard.is_ending:
            output_guard.pending = 0
            task.cancel()

    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        return await work
    except asyncio.CancelledError:
        if received:
            raise Interrupted(received[0]) from None
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
