"""Requests that the controller decides: the response is sent once the records are committed."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from lograft.api.context import Context
from lograft.broker.errors import NotController, WaitTimedOut
from lograft.broker.shared_services import ControllerPort
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult

R = TypeVar("R")

#: For requests without a timeout.
TIMEOUT_MS: Final = 30_000


def controller_of(context: Context) -> ControllerPort:
    """Returns the controller in this process, active or not."""
    controller = context.shared.local_controller
    if controller is None:
        raise NotController(f"node {context.shared.node_id} is not a controller")
    return controller


async def decide(
    context: Context,
    decision: Callable[[MetadataImage], ControllerResult[R]],
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> R:
    """Returns the decision's reply. Raises the error of the decision, NotController, or
    WaitTimedOut; after the last one the records may still be committed later."""
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            return await controller_of(context).submit(decision)
    except TimeoutError:
        raise WaitTimedOut(f"not committed within {timeout_ms} ms") from None
