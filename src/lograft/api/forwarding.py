"""Requests that only the active controller can decide, on a broker's listener.

A controller in this process gets the decoded request and returns its response. Another one gets
the client's frame in an Envelope, with the client's principal and address, and its answer comes
back unread. Both ways the controller handles the request alike (`Router.answer_forwarded`).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeVar

from lograft.api.context import Context
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import Forwarded
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
#: A broker decides the part of these that concerns itself, and forwards the rest on its own.
PARTLY_OWN: Final = frozenset({ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS})
#: About the quorum itself: who does not lead it answers NOT_LEADER_OR_FOLLOWER.
QUORUM_APIS: Final = frozenset({55, 80, 81})
#: What an Envelope may hold.
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
#: Rejected by every node, until there is security. They are not forwarded, because an Apache Kafka
#: controller would accept them.
REJECTED: Final = frozenset({30, 31, 38, 39, 40, 49, 51})
FORWARDED: Final = FORWARDABLE - PARTLY_OWN - REJECTED

LANE: Final = "forward"
#: As long as Kafka's brokers try; a client's own time is shorter or asks again.
TIMEOUT_MS_MAX: Final = 30_000
#: An answer waits so long for this broker's own metadata to have what it says.
IMAGE_WAIT_MS: Final = 1_000
#: A client that gives no time at all still gets an attempt.
TIMEOUT_MS_MIN: Final = 1_000


def served_with_controller(context: Context) -> Iterator[ApiSpec]:
    """The APIs that this listener serves. As in Kafka, those that are forwarded only in versions
    that the active controller serves, too: it may be of an older build while nodes are upgraded."""
    ranges = _link(context).served_versions() if must_forward(context) else None
    for spec in context.served:
        if ranges is None or spec.key not in FORWARDED | PARTLY_OWN:
            yield spec
        elif (theirs := ranges.get(spec.key)) is not None:
            oldest = max(spec.min_version, theirs.oldest)
            newest = min(spec.max_version, theirs.newest)
            if oldest <= newest:
                yield spec._replace(min_version=oldest, max_version=newest)


async def forward_frame(context: Context, request: Message, frame: bytes) -> Message | bytes:
    """The response of this node's own controller, or another one's answer as header and body.
    `frame` holds the request with its header. Raises ControllerUnreachable, or Rejected with what
    the controller has against the envelope."""
    return await _forward(context, request, lambda: frame)


async def forward(context: Context, request: Message, answer: type[R]) -> R:
    """The same for a request that a handler has made of its own."""

    def make_frame() -> bytes:
        version, client_id = context.api_version, context.client_id
        return frame_request(request, version, correlation_id=0, client_id=client_id)[4:]

    response = await _forward(context, request, make_frame)
    if isinstance(response, bytes):
        response = read_answer(response, context.api_key, context.api_version)
    assert isinstance(response, answer), (response, answer)
    return response


async def _forward(
    context: Context, request: Message, make_frame: Callable[[], bytes]
) -> Message | bytes:
    def make_envelope() -> EnvelopeRequest:
        return EnvelopeRequest(
            request_data=make_frame(),
            request_principal=encode_principal(context.principal),
            client_host_address=address_bytes(context.peer),
        )

    forwarded = Forwarded(
        request,
        context.api_version,
        context.client_id,
        context.principal,
        forwarded_address(context.peer),
    )
    reply = await _link(context).forward(
        forwarded, make_envelope, timeout_ms=_timeout_ms(request), lane=LANE
    )
    if not isinstance(reply, EnvelopeResponse):
        # The image of this node had what the response says before it was released.
        return reply
    if reply.error_code:
        try:
            code = ErrorCode(reply.error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.UNSUPPORTED_VERSION:
            # The client asked for versions when another controller was active: as in Kafka, it has
            # to connect again and learn those that this one serves.
            raise CloseConnection(
                f"the active controller does not serve API {context.api_key} version"
                f" {context.api_version}"
            )
        raise Rejected(code, f"The controller refused what this broker forwarded: {code.name}.")
    if reply.response_data is None:
        raise ControllerUnreachable("the controller's answer is empty")
    # Whoever made a topic through this broker finds it here afterwards.
    await context.shared.metadata.wait_offset(
        Offset(reply.metadata_offset), timeout_ms=IMAGE_WAIT_MS
    )
    return reply.response_data


def must_forward(context: Context) -> bool:
    return context.router is not None and context.router.link is not None


def read_answer(data: bytes, key: int, version: int) -> Message:
    _, position = read_response_header(data, response_header_version(key, version))
    return read_all(response_class(key), version, data, position)


def address_bytes(address: Address) -> bytes:
    """Hosts that are no numbers (simulated ones) are told as the unknown address."""
    try:
        return ip_address(address.host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


@lru_cache(maxsize=1_000)
def forwarded_address(address: Address) -> Address:
    """As the controller gets it in an Envelope."""
    return address_of(address_bytes(address))


def address_of(data: bytes) -> Address:
    try:
        return Address(str(ip_address(data)), 0)
    except ValueError:
        raise InvalidInput(f"a client address of {len(data)} bytes") from None


def _link(context: Context) -> "ControllerLink":
    assert context.router is not None
    assert context.router.link is not None
    return context.router.link


def _timeout_ms(request: Message) -> int:
    asked = getattr(request, "timeout_ms", TIMEOUT_MS_MAX)
    return min(max(asked, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
