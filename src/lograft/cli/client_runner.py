"""Runs the client operations of a command in an event loop."""

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
#: Half of Kafka's default: someone is waiting at a terminal.
API_TIMEOUT_MS: Final = "30000"


def with_admin(
    servers: str | None, config_file: str | None, work: Callable[[Admin], Awaitable[T]]
) -> T:
    """Runs `work` with an Admin; raises ConnectionFailed immediately if no server is reachable."""
    settings = {
        "client.id": CLIENT_ID,
        "default.api.timeout.ms": API_TIMEOUT_MS,
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
    """Runs `work` without the clients' log messages, so that a failed command prints a single error
    message. Signals cancel `work`, so that clients close."""
    work = cancel_on_signals(work)
    if os.environ.get("LOGRAFT_TRACE"):
        return event_loop.run(work)
    clients = logging.getLogger("lograft.client")
    level = clients.level
    clients.setLevel(logging.CRITICAL)
    try:
        return event_loop.run(work)
    finally:
        # A program may call `main` and continue to use its own clients.
        clients.setLevel(level)
