"""Retries of an operation until a timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from lograft.client.backoff import backoff_ms
from lograft.client.core import ClientCore
from lograft.client.errors import BrokerError, ClientError, TimedOut
from lograft.model.errors import ErrorCode

T = TypeVar("T")

#: A coordinator that is still completing the previous transaction is ready again after this time.
_CONCURRENT_BACKOFF_MS: Final = 20


async def retry(
    core: ClientCore[Any], attempt: Callable[[], Awaitable[T]], *, what: str, timeout_ms: int
) -> T:
    """Calls `attempt` until it succeeds or fails with an error that is not retriable, with growing
    pauses. Raises TimedOut after `timeout_ms`, with the last failure as its cause."""
    settings = core.settings
    failures = 0
    last: ClientError | None = None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                try:
                    return await attempt()
                except ClientError as error:
                    if not error.is_retriable:
                        raise
                    last = error
                failures += 1
                pause_ms = backoff_ms(
                    settings.retry_backoff_ms,
                    settings.retry_backoff_max_ms,
                    failures,
                    core.runtime.randomness,
                )
                if _is_concurrent(last):
                    pause_ms = min(pause_ms, _CONCURRENT_BACKOFF_MS)
                await asyncio.sleep(pause_ms / 1000)
    except TimeoutError:
        cause = f"last error: {last}" if last else "no broker responded"
        raise TimedOut(f"{what} timed out after {timeout_ms} ms; {cause}") from last


def _is_concurrent(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS
