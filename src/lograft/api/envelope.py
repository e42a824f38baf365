"""Envelope, version 0, controller listener: a broker forwards a client's request.

The inner request keeps its header and version, and is handled as if the client had sent it to this
controller: with its principal and address. The broker needs ClusterAction for the envelope; the
client's own permissions are checked here, not by the broker. The inner response is returned as
bytes. If this controller is not, or no longer, the active one, the envelope itself carries
NOT_CONTROLLER, wherever the inner response would have it.
"""

from collections.abc import Coroutine
from typing import Any, Final

from lograft.api.context import Api, Context
from lograft.api.forwarding import FORWARDABLE, address_of
from lograft.api.types import whole_request
from lograft.broker.errors import NotController
from lograft.broker.links.controller_link import ForwardedRequest
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.exchange import CloseConnection
from lograft.model.seams import FileSlice
from lograft.security.authorization import CLUSTER_ACTION
from lograft.security.principals import decode_principal
from lograft.wire.apis import response_header_version
from lograft.wire.codec import read
from lograft.wire.errors import WireError
from lograft.wire.headers import frame_response, read_request_header
from lograft.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

API: Final = Api(key=58, versions=range(1), needs=whole_request(CLUSTER_ACTION))


def handle(context: Context, request: EnvelopeRequest) -> Coroutine[Any, Any, EnvelopeResponse]:
    # Envelopes of one broker contain requests of many clients, which do not wait for each other.
    context.allows_pipelining = True
    return _open(context, request)


async def _open(context: Context, request: EnvelopeRequest) -> EnvelopeResponse:
    try:
        principal = decode_principal(request.request_principal or b"")
    except InvalidInput:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    router, frame = context.router, request.request_data
    assert router is not None
    try:
        peer = address_of(request.client_host_address)
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        if key not in FORWARDABLE:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        route = router.route(key)
        if version not in route.versions:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = read(route.request_kind, version, frame, header.body_position)
    except (InvalidInput, WireError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except CloseConnection:
        # This controller has no handler for the API: the broker is newer than its controller.
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        response = await router.handle_forwarded(
            ForwardedRequest(
                inner, version, header.client_id, principal.name, peer, principal.with_token
            )
        )
    except NotController:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    parts = frame_response(
        response,
        version,
        correlation_id=header.correlation_id,
        header_version=response_header_version(key, version),
    )
    return EnvelopeResponse(
        response_data=b"".join(part for part in parts if not isinstance(part, FileSlice))[4:],
        metadata_offset=context.shared.image.offset,
    )
