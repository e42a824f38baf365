"""Waits for changes by another process, thread or task."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

SECONDS_MAX: Final = 90.0
PAUSE_SECONDS: Final = 0.02


def wait_until(
    is_met: Callable[[], object],
    what: str = "the condition is met",
    *,
    seconds_max: float = SECONDS_MAX,
) -> None:
    """`what` names the condition in the error after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while not is_met():
        assert time.monotonic() < deadline, f"not within {seconds_max:.0f} s: {what}"
        time.sleep(PAUSE_SECONDS)


async def wait_until_async(
    is_met: Callable[[], object],
    what: str = "the condition is met",
    *,
    seconds_max: float = SECONDS_MAX,
    pause_seconds: float = PAUSE_SECONDS,
) -> None:
    """The same on an event loop, also on one with virtual time."""
    try:
        async with asyncio.timeout(seconds_max):
            while not is_met():
                await asyncio.sleep(pause_seconds)
    except TimeoutError:
        raise AssertionError(f"not within {seconds_max:.0f} s: {what}") from None
