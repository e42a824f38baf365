"""SaslAuthenticate, versions 0-2: ILLEGAL_SASL_STATE, since no listener authenticates clients."""

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
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message=f"Listener {context.listener} does not use SASL: set security.protocol of"
        " the client to the protocol of the listener.",
    )
