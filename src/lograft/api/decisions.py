"""The third road: the controller decides a request, the reply waits until it is committed."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from lograft.api.context import Context
from lograft.broker.errors import WaitTimedOut
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import Outcome

R = TypeVar("R")

#: For requests that bring no timeout of their own.
TIMEOUT_MS: Final = 30_000


async def decide(
    context: Context,
    decision: Callable[[MetadataImage], Outcome[R]],
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> R:
    """The decision's reply. Raises what the decision raises, NotController, or WaitTimedOut: then
    the records may still become committed later."""
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            return await context.broker.controller.submit(decision)
    except TimeoutError:
        raise WaitTimedOut(f"not committed within {timeout_ms} ms") from None
