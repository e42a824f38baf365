"""SaslAuthenticate, versions 0-2: ILLEGAL_SASL_STATE.

Reached only where nothing is left to authenticate, like `api/sasl_handshake.py`. The messages of
clients that authenticate are handled by `api/sasl_session.py`. v1: the lifetime of the session.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import NOTHING
from lograft.model.errors import ErrorCode
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

API: Final = Api(key=36, versions=range(3), needs=NOTHING)


def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    security = context.shared.config.listener_security.get(context.listener)
    if security is not None and security.uses_sasl:
        message = "SaslAuthenticate request received after successful authentication"
    else:
        message = (
            f"Listener {context.listener} does not use SASL: set security.protocol of the client to"
            " the protocol of the listener."
        )
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
