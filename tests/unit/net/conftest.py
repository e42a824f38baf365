"""Both event loops."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import pytest

from lograft.runtime.event_loop import fastest_loop_factory
from tests.unit.net.watching import RunOnLoop

T = TypeVar("T")


@pytest.fixture(params=["asyncio", "fastest"])
def on_loop(request: pytest.FixtureRequest) -> RunOnLoop:
    """Runs a test's coroutine on asyncio's own loop, then on the one that production takes."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else fastest_loop_factory()

    async def bounded(main: Awaitable[T]) -> T:
        async with asyncio.timeout(60):
            return await main

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(bounded(main))

    return run
