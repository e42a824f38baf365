"""The context of a request: client, listener, version and services, next to the request itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lograft.api.types import Api
from lograft.model.exchange import DelayedReply, EncodedResponse
from lograft.model.seams import Address
from lograft.security.authorization import Authorizer
from lograft.wire.apis import ApiSpec
from lograft.wire.message import Message

if TYPE_CHECKING:
    from lograft.api.request_times import RequestTiming
    from lograft.api.request_usage import RequestUsage
    from lograft.api.router import Router
    from lograft.broker.broker import Broker
    from lograft.broker.shared_services import SharedServices

__all__ = ["ANONYMOUS", "Api", "Context", "DelayedResponse"]

#: The principal on listeners that do not authenticate clients.
ANONYMOUS: Final = "User:ANONYMOUS"
#: Kafka's name for the software of clients that do not report any.
UNKNOWN_SOFTWARE: Final = "unknown"


class ClientSoftware:
    """The client's software name and version, as sent in ApiVersions (KIP-511)."""

    __slots__ = ("name", "version")

    def __init__(self) -> None:
        self.name = UNKNOWN_SOFTWARE
        self.version = UNKNOWN_SOFTWARE


class Context:
    """The context of one request. Plain slots, because one is created for each request."""

    __slots__ = (
        "allows_pipelining",
        "api_key",
        "api_version",
        "authorizer",
        "broker",
        "client_id",
        "is_forwarded",
        "listener",
        "peer",
        "principal",
        "role",
        "router",
        "served",
        "shared",
        "software",
        "timing",
        "usage",
        "when_closed",
        "with_token",
    )

    #: The broker of this node; not set on a controller's listener.
    broker: "Broker"

    def __init__(
        self,
        shared: "SharedServices",
        broker: "Broker | None",
        *,
        api_key: int,
        api_version: int,
        client_id: str | None,
        listener: str,
        role: str,
        peer: Address,
        principal: str,
        served: tuple[ApiSpec, ...],
        software: ClientSoftware,
        authorizer: Authorizer | None = None,
        router: "Router | None" = None,
        when_closed: Callable[[Callable[[], None]], None] | None = None,
        with_token: bool = False,
    ) -> None:
        #: Services that the broker and the controller of this node share.
        self.shared = shared
        if broker is not None:
            self.broker = broker
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        #: The listener's name, and its role: "broker" or "controller".
        self.listener = listener
        self.role = role
        self.peer = peer
        self.principal = principal
        #: The client has authenticated with a delegation token of the principal.
        self.with_token = with_token
        #: The APIs that this listener serves.
        self.served = served
        self.software = software
        #: Checks the principal's permissions (see `api/authorization.py`). None: everything is
        #: allowed.
        self.authorizer = authorizer
        #: For requests inside other requests, and for those that the controller decides.
        self.router = router
        #: Sets the callback for the end of the connection, replacing the one set before. None: the
        #: request did not arrive on a connection.
        self.when_closed = when_closed
        #: A handler that returns a coroutine may set this when everything that depends on the order
        #: of requests is done (Produce has appended): the next requests of the connection are then
        #: handled while this one waits.
        self.allows_pipelining = False
        #: Set if the request is measured.
        self.timing: RequestTiming | None = None
        #: Set if quotas are configured and apply to the request.
        self.usage: RequestUsage | None = None
        #: A broker has checked the request and forwarded it in an Envelope.
        self.is_forwarded = False


class DelayedResponse(DelayedReply):
    """Returned by a handler in place of a coroutine if a callback completes its response."""

    __slots__ = ("encode",)

    #: Encodes the response; set by the router.
    encode: Callable[[Message], EncodedResponse]
