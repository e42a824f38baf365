"""Runs a coroutine on uvloop where it can be imported, on asyncio's own loop where not."""

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
    """Like asyncio.run: cancels on Ctrl-C, waits for what is left, closes the loop."""
    with asyncio.Runner(loop_factory=fastest_loop_factory()) as runner:
        return runner.run(main)
