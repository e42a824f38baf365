"""Who may read what the HTTP listener serves, if it has authentication.

`AccessControl` is in front of the application. Every path needs the permission of an `HttpAccess`,
also a path that does not exist, so a route that is added later is closed. Open are the paths of
`OPEN_PATHS`, and the status of `READY_PATH` without its reasons: supervisors have no users.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from lograft.model.http_access import HttpAccess, Refusal
from lograft.model.seams import Address

OPEN_PATHS: Final = frozenset({"/health/live"})
READY_PATH: Final = "/health/ready"
#: Key of the scope: False if the client may know only the status.
MAY_DESCRIBE: Final = "lograft.may_describe"

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_Application = Callable[[dict[str, Any], _Receive, _Send], Awaitable[None]]


class AccessControl:
    """An ASGI application."""

    def __init__(self, application: _Application, access: HttpAccess) -> None:
        self._application = application
        self._access = access

    async def __call__(self, scope: dict[str, Any], receive: _Receive, send: _Send) -> None:
        path = scope["path"]
        authorization = [value for name, value in scope["headers"] if name == b"authorization"]
        refusal = None
        if path in OPEN_PATHS or (path == READY_PATH and not authorization):
            scope[MAY_DESCRIBE] = False
        else:
            refusal = await self._access.check(authorization, Address(*scope["client"]))
            if refusal is not None and path == READY_PATH:
                scope[MAY_DESCRIBE] = False
                if refusal.status is HTTPStatus.FORBIDDEN:
                    refusal = None
        if refusal is None:
            await self._application(scope, receive, send)
        else:
            await _send_refusal(refusal, send)


async def _send_refusal(refusal: Refusal, send: _Send) -> None:
    body = json.dumps({"error": refusal.message}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *((b"www-authenticate", challenge.encode()) for challenge in refusal.challenges),
    ]
    if refusal.retry_after_seconds is not None:
        headers.append((b"retry-after", str(refusal.retry_after_seconds).encode()))
    await send({"type": "http.response.start", "status": int(refusal.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
