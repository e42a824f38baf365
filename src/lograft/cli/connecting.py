"""Commands as clients: one administrator for the time of a command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lograft.cli.contexts import client_settings
from lograft.client.admin import Admin

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

    async def main() -> T:
        async with Admin(settings) as admin:
            await admin.connect()
            return await work(admin)

    return asyncio.run(main())
