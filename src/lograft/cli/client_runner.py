"""Commands as clients: one administrator, producer or consumer for the time of a command."""

import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from lograft.cli.contexts import client_settings
from lograft.cli.interrupts import cancel_on_signals
from lograft.client.admin import Admin
from lograft.runtime import event_loop

T = TypeVar("T")

CLIENT_ID: Final = "lograft"
#: Nobody looks at a command for longer than that without doubt.
PATIENCE_MS: Final = "30000"


def with_admin(
    servers: str | None, config_file: str | None, work: Callable[[Admin], Awaitable[T]]
) -> T:
    """Servers that do not answer at all are told at once."""
    settings = {
        "client.id": CLIENT_ID,
        "default.api.timeout.ms": PATIENCE_MS,
        **client_settings(servers, config_file),
    }
    return run_admin(settings, work)


def run_admin(settings: dict[str, Any], work: Callable[[Admin], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Admin(settings) as admin:
            await admin.connect()
            return await work(admin)

    return run(main())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Silences the clients' logs: a failed command prints a single error message. Signals cancel
    the work, so that clients close."""
    work = cancel_on_signals(work)
    if os.environ.get("LOGRAFT_TRACE"):
        return event_loop.run(work)
    clients = logging.getLogger("lograft.client")
    level = clients.level
    clients.setLevel(logging.CRITICAL)
    try:
        return event_loop.run(work)
    finally:
        # A command may be one call of a larger program, whose clients go on speaking.
        clients.setLevel(level)
