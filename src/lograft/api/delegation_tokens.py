"""What the requests for delegation tokens have in common.

A broker checks whether the client may send them at all, because only it knows the client's
listener, and forwards them; the active controller decides.
"""

from collections.abc import Callable
from typing import TypeVar

from lograft.api.context import ANONYMOUS, Context
from lograft.api.decisions import decide
from lograft.api.forwarding import forward, must_forward
from lograft.metadata.delegation_tokens import TokenRequester
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult
from lograft.model.errors import ErrorCode
from lograft.model.settings.delegation_tokens import token_settings
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)


def may_request_tokens(context: Context) -> bool:
    """As in Kafka: the client must have authenticated, and not with a token, since a token could
    otherwise be used to extend its own lifetime."""
    if context.with_token:
        return False
    if context.is_forwarded:
        return True
    security = context.shared.config.listener_security.get(context.listener)
    if security is None:
        return False
    return security.uses_sasl or (security.uses_tls and context.principal != ANONYMOUS)


def requester_of(context: Context) -> TokenRequester:
    shared = context.shared
    return TokenRequester(context.principal, token_settings(shared.config), shared.clock.wall_ms())


async def change_tokens(
    context: Context,
    request: Message,
    response_type: type[R],
    decision: Callable[[MetadataImage], ControllerResult[R]],
) -> R:
    """Returns the response from the active controller."""
    if must_forward(context):
        return await forward(context, request, response_type)
    return await decide(context, decision)


def log_change(
    context: Context, event: str, code: int, *, owner: str = "", token_id: str = ""
) -> None:
    """Writes a line to the security log of the node that received the request."""
    authentication = None if context.router is None else context.router.authentication
    if authentication is not None and not context.is_forwarded:
        authentication.security_log.write(
            event,
            context.peer,
            failed=bool(code),
            reason=ErrorCode(code).name if code else "",
            principal=context.principal,
            owner=owner,
            token=token_id,
            listener=context.listener,
        )
