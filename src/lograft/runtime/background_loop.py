"""An event loop in a separate thread, for programs without asyncio."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lograft.runtime.event_loop import fastest_loop_factory

T = TypeVar("T")


def calling_thread() -> str:
    """Returns name and number of the calling thread."""
    thread = threading.current_thread()
    return f"{thread.name!r} ({thread.ident})"


class BackgroundLoop:
    """Started once, closed once. Any thread but its own may call it; a call that waits blocks the
    calling thread, and Ctrl-C there cancels the operation."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_own_thread(self) -> bool:
        """Returns whether the caller runs in this loop, as a callback does."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        assert self._thread is None, "a background loop is started once"
        self._loop = fastest_loop_factory()()
        # A daemon, so that a program that ends without closing its client does not hang.
        self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Blocks until the coroutine has completed; returns its result or raises its exception."""
        if self.is_own_thread:
            work.close()
            raise RuntimeError(
                f"A callback in thread {self._name!r} would wait for its own thread."
            )
        try:
            outcome = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except RuntimeError:
            work.close()
            raise
        try:
            return outcome.result()
        except KeyboardInterrupt:
            outcome.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function in the loop, and blocks until it has returned. In the loop's own thread
        it runs immediately."""
        if self.is_own_thread:
            return function()

        async def call_function() -> T:
            return function()

        return self.run(call_function())

    def post(self, function: Callable[[], object]) -> None:
        """Schedules a function in the loop. Raises RuntimeError after the loop has ended."""
        self._running_loop().call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancels the remaining tasks of the loop, and ends its thread."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"Thread {self._name!r} has not been started.")
        return self._loop

    def _serve(self) -> None:
        loop = self._running_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
