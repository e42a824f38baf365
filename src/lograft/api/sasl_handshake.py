"""SaslHandshake, versions 0-1: ILLEGAL_SASL_STATE.

Reached only where nothing is left to authenticate: on a listener without SASL, or after the client
has authenticated. `api/sasl_session.py` handles the handshake before that, and that of a client
which authenticates again. As with Kafka, a SASL client of a listener without SASL fails immediately
instead of retrying until it times out.
"""

from typing import Final

from lograft.api.context import Api, Context
from lograft.api.types import NOTHING
from lograft.model.errors import ErrorCode
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

API: Final = Api(key=17, versions=range(2), needs=NOTHING)


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
