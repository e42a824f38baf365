"""Who asks, through which listener, in which version: what a handler knows beside the request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lograft.api.types import Api
from lograft.model.exchange import DelayedReply, EncodedResponse
from lograft.model.seams import Address
from lograft.security.authorization import Authorizer
from lograft.wire.apis import ApiSpec
from lograft.wire.message import Message

if TYPE_CHECKING:
    from lograft.api.router import Router
    from lograft.broker.broker import Broker
    from lograft.broker.shared_services import SharedServices

__all__ = ["ANONYMOUS", "Api", "Context", "DelayedResponse"]

#: The principal of a listener that does not ask who you are.
ANONYMOUS: Final = "User:ANONYMOUS"
#: Kafka's name for the software of clients that do not name it.
UNKNOWN_SOFTWARE: Final = "unknown"


class ClientSoftware:
    """What the client of a connection has said about itself, in ApiVersions (KIP-511)."""

    __slots__ = ("name", "version")

    def __init__(self) -> None:
        self.name = UNKNOWN_SOFTWARE
        self.version = UNKNOWN_SOFTWARE


class Context:
    """One request's surroundings. Plain slots: made once per request."""

    __slots__ = (
        "_broker",
        "allows_pipelining",
        "api_key",
        "api_version",
        "authorizer",
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
        "when_closed",
    )

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
    ) -> None:
        #: What the broker and the controller of this node share.
        self.shared = shared
        self._broker = broker
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        #: The listener's name, and what it serves: "broker" or "controller".
        self.listener = listener
        self.role = role
        self.peer = peer
        self.principal = principal
        #: What this listener serves.
        self.served = served
        self.software = software
        #: Decides what the principal may do (`api/authorization.py` asks it). None: everything is
        #: allowed.
        self.authorizer = authorizer
        #: For requests that carry others inside, and those that the controller decides.
        self.router = router
        #: Sets what is called when the connection ends; the last one that was set counts. None:
        #: the request came through no connection.
        self.when_closed = when_closed
        #: A handler that returns a coroutine may set this when all that depends on the order of
        #: requests has already happened (Produce has appended): the connection's next requests are
        #: then handled while this one waits.
        self.allows_pipelining = False
        #: A broker has checked the request and sent it in an Envelope.
        self.is_forwarded = False

    @property
    def broker(self) -> "Broker":
        """Of the node whose listener this is: controllers' listeners have none."""
        assert self._broker is not None, "a controller's listener"
        return self._broker


class DelayedResponse(DelayedReply):
    """What a handler returns in place of a coroutine if its response comes by a call."""

    __slots__ = ("frame",)

    #: Makes the answer of the response; given by the router.
    frame: Callable[[Message], EncodedResponse]
