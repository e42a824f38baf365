"""Requests on a broker's listener that only the active controller can handle.

A controller in this process gets the decoded request and returns its response. Another one gets the
client's frame in an Envelope, with the client's principal and address, and its response is passed
on without decoding. The controller handles both alike (`Router.handle_forwarded`).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeVar

from lograft.api.context import Context
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ForwardedRequest
from lograft.model.errors import ErrorCode, InvalidInput, Rejected
from lograft.model.exchange import CloseConnection
from lograft.model.seams import Address
from lograft.model.types import Offset
from lograft.security.principals import encode_principal
from lograft.wire.apis import ApiSpec, response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from lograft.broker.links.controller_link import ControllerLink

R = TypeVar("R", bound=Message)

ALTER_CONFIGS: Final = 33
INCREMENTAL_ALTER_CONFIGS: Final = 44
#: A broker handles the entries for itself and forwards the others in a request of its own.
PARTLY_OWN: Final = frozenset({ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS})
#: Changes of the quorum: a node that is not its leader returns NOT_LEADER_OR_FOLLOWER.
QUORUM_APIS: Final = frozenset({55, 80, 81})
#: The APIs that an Envelope may contain.
FORWARDABLE: Final = PARTLY_OWN | QUORUM_APIS | frozenset({
    19,  # CreateTopics
    20,  # DeleteTopics
    30, 31,  # CreateAcls, DeleteAcls
    37,  # CreatePartitions
    38, 39, 40,  # delegation tokens
    43,  # ElectLeaders
    45, 46,  # AlterPartitionReassignments, ListPartitionReassignments
    49,  # AlterClientQuotas
    51,  # AlterUserScramCredentials
    57,  # UpdateFeatures
    64,  # UnregisterBroker
})  # fmt: skip
#: Delegation tokens: the handler checks the client's listener before it forwards a request.
CHECKED: Final = frozenset({38, 39, 40})
FORWARDED: Final = FORWARDABLE - PARTLY_OWN - CHECKED

LANE: Final = "forward"
#: As long as Kafka's brokers retry. Clients with a shorter timeout give up or retry themselves.
TIMEOUT_MS_MAX: Final = 30_000
#: Maximum wait until this broker's own metadata includes the change in the response.
IMAGE_WAIT_MS: Final = 1_000
#: A request with a zero timeout still gets one attempt.
TIMEOUT_MS_MIN: Final = 1_000


def served_with_controller(context: Context) -> Iterator[ApiSpec]:
    """Returns the APIs that this listener serves. As in Kafka, those that are forwarded are limited
    to versions that the active controller supports: it may have an older release in an upgrade."""
    ranges = _link(context).served_versions() if must_forward(context) else None
    for spec in context.served:
        if ranges is None or spec.key not in FORWARDED | PARTLY_OWN | CHECKED:
            yield spec
        elif (controller_range := ranges.get(spec.key)) is not None:
            oldest = max(spec.min_version, controller_range.oldest)
            newest = min(spec.max_version, controller_range.newest)
            if oldest <= newest:
                yield spec._replace(min_version=oldest, max_version=newest)


async def forward_frame(context: Context, request: Message, frame: bytes) -> Message | bytes:
    """Returns the response of this node's own controller, or another controller's response as
    header and body. `frame` is the request with its header. Raises ControllerUnreachable, or
    Rejected if the controller rejects the envelope."""
    return await _forward(context, request, lambda: frame)


async def forward(context: Context, request: Message, response_type: type[R]) -> R:
    """Forwards a request that a handler has built, and returns the response."""

    def build_frame() -> bytes:
        version, client_id = context.api_version, context.client_id
        return frame_request(request, version, correlation_id=0, client_id=client_id)[4:]

    response = await _forward(context, request, build_frame)
    if isinstance(response, bytes):
        response = read_response(response, context.api_key, context.api_version)
    assert isinstance(response, response_type), (response, response_type)
    return response


async def _forward(
    context: Context, request: Message, build_frame: Callable[[], bytes]
) -> Message | bytes:
    def build_envelope() -> EnvelopeRequest:
        return EnvelopeRequest(
            request_data=build_frame(),
            request_principal=encode_principal(context.principal, with_token=context.with_token),
            client_host_address=address_bytes(context.peer),
        )

    forwarded = ForwardedRequest(
        request,
        context.api_version,
        context.client_id,
        context.principal,
        forwarded_address(context.peer),
        context.with_token,
    )
    reply = await _link(context).forward(
        forwarded, build_envelope, timeout_ms=_timeout_ms(request), lane=LANE
    )
    if not isinstance(reply, EnvelopeResponse):
        # The image of this node already had the change when the response was released.
        return reply
    if reply.error_code:
        try:
            code = ErrorCode(reply.error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.UNSUPPORTED_VERSION:
            # The client got its versions when another controller was active: as in Kafka, it has to
            # connect again to get those that this one supports.
            raise CloseConnection(
                f"The active controller does not support version {context.api_version} of API"
                f" {context.api_key}."
            )
        raise Rejected(code, f"The controller rejected a forwarded request: {code.name}.")
    if reply.response_data is None:
        raise ControllerUnreachable("The controller's response is empty.")
    # A client that created a topic through this broker then finds it in this broker's metadata.
    await context.shared.metadata.wait_offset(
        Offset(reply.metadata_offset), timeout_ms=IMAGE_WAIT_MS
    )
    return reply.response_data


def must_forward(context: Context) -> bool:
    return context.router is not None and context.router.link is not None


def read_response(data: bytes, key: int, version: int) -> Message:
    _, position = read_response_header(data, response_header_version(key, version))
    return read_all(response_class(key), version, data, position)


def address_bytes(address: Address) -> bytes:
    """Host names that are not IP addresses (in the simulation) become the unspecified address."""
    try:
        return ip_address(address.host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


@lru_cache(maxsize=1_000)
def forwarded_address(address: Address) -> Address:
    """Returns the address as the controller receives it in an Envelope."""
    return address_of(address_bytes(address))


def address_of(data: bytes) -> Address:
    try:
        return Address(str(ip_address(data)), 0)
    except ValueError:
        raise InvalidInput(f"The client address has {len(data)} bytes, not 4 or 16.") from None


def read_throttle_ms(data: bytes, key: int, version: int) -> int:
    """Returns the throttle time of another node's response without decoding the rest: in the
    responses to forwarded requests it is the first field."""
    first = response_class(key).FIELDS[0]
    if first.name != "throttle_time_ms":
        return 0
    _, position = read_response_header(data, response_header_version(key, version))
    return max(0, int.from_bytes(data[position : position + 4], "big", signed=True))


def _link(context: Context) -> "ControllerLink":
    assert context.router is not None
    assert context.router.link is not None
    return context.router.link


def _timeout_ms(request: Message) -> int:
    requested_ms = getattr(request, "timeout_ms", TIMEOUT_MS_MAX)
    return min(max(requested_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
