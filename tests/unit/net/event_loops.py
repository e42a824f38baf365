"""Runs tests on a selected event loop."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.scenarios import SECONDS_MAX

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_on_loop(body: Callable[[], Awaitable[None]], loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await body()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
