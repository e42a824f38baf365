"""SIGTERM and SIGHUP stop a command cleanly, as Ctrl-C does.

The signal cancels the command, so that consumers leave their groups and producers flush. A second
signal ends the process immediately.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
#: The exit code of a command that a signal stopped is this plus the signal's number.
EXIT_CODE_BASE: Final = 128


class Interrupted(BaseException):
    """A signal stopped the command. Not an Exception: only the entry point handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = EXIT_CODE_BASE + number


async def cancel_on_signals(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` and raises Interrupted if a signal cancelled it. If the cleanup of `work` fails
    (records could not be flushed, for example), that error is raised instead."""
    if threading.current_thread() is not threading.main_thread():
        return await work
    received: list[int] = []
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def cancel(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for installed_number in installed:
            signal.signal(installed_number, signal.SIG_DFL)
        task.cancel()
        # Wakes the loop, which may be waiting for I/O.
        loop.call_soon_threadsafe(lambda: None)

    # A signal that the parent process ignores (nohup) stays ignored.
    installed = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in installed:
        signal.signal(number, cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if received:
            raise Interrupted(received[0]) from None
        raise
    finally:
        for number in installed:
            signal.signal(number, signal.SIG_DFL)
