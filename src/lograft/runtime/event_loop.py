"""Runs a coroutine in uvloop's event loop if it is installed, otherwise in asyncio's."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def fastest_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run: cancels on Ctrl-C, waits for remaining tasks, closes the loop."""
    with asyncio.Runner(loop_factory=fastest_loop_factory()) as runner:
        return runner.run(main)
