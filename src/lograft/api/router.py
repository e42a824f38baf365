"""From a frame to its answer: header, body, handler, response.

Every request passes through here. This is where requests are counted, clients above their quota are
throttled and muted, permissions for the whole request are checked, and errors become responses.
Where Kafka closes the connection (an API or version that is not served, a body that does not parse)
an error is raised here, which the connection logs in one line.
"""

import logging
import pkgutil
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from lograft import api
from lograft.api.authorization import check_request
from lograft.api.context import ANONYMOUS, ClientSoftware, Context, DelayedResponse
from lograft.api.errors import code_of
from lograft.api.fetch_patterns import FRAME_BYTES_MIN, FetchPatterns
from lograft.api.forwarding import FORWARDED, QUORUM_APIS, forward_frame, read_answer
from lograft.api.partition_votes import KEYS as PARTITION_VOTES
from lograft.api.produce_patterns import ProducePatterns
from lograft.api.types import Needs
from lograft.api.unsupported_apis import KEYS as UNSERVED
from lograft.broker.errors import NotController
from lograft.broker.links.controller_link import Forwarded, has_error
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply, Reply
from lograft.model.metrics import API, LISTENER, Counter, Sample
from lograft.model.printable_text import printable
from lograft.model.seams import Address, Channel
from lograft.security.authorization import Authorizer
from lograft.wire.apis import (
    API_VERSIONS,
    API_VERSIONS_KEY,
    FETCH_KEY,
    PRODUCE_KEY,
    ApiRanges,
    ApiSpec,
    request_class,
    response_class,
    response_header_version,
)
from lograft.wire.codec import read
from lograft.wire.errors import UnwritableMessage
from lograft.wire.headers import RequestHeader, frame_response, read_request_header
from lograft.wire.message import Message
from lograft.wire.messages.fetch import FetchRequest
from lograft.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from lograft.broker.broker import Broker
    from lograft.broker.links.controller_link import ControllerLink
    from lograft.broker.shared_services import SharedServices

#: So many readers of what a read brought are answered before its producer.
WOKEN_FIRST_MAX: Final = 4
#: socket.request.max.bytes
FRAME_BYTES_MAX: Final = 100 << 20
#: InitProducerId 6: two-phase commit.
UNSTABLE: Final = frozenset({22})
#: The peer of a request that came through no connection.
NOBODY: Final = Address("", 0)

REQUESTS: Final = Counter("lograft_requests_total", "Requests that were handled.", LISTENER, API)
FAST_PATH_REQUESTS: Final = Counter(
    "lograft_fast_path_requests_total",
    "Those of lograft_requests_total that were served by a pattern, without decoding them.",
    LISTENER,
    API,
)

LOGGER: Final = logging.getLogger(__name__)

HandlerResult = Message | DelayedResponse | Coroutine[Any, Any, Message | None] | None
Handle = Callable[[Context, Any], HandlerResult]
ErrorResponse = Callable[[Any, ErrorCode, str], Message]


class Throttle(Protocol):
    def __call__(self, context: Context, request: Message) -> int:
        """How many milliseconds the client is above its quota; 0 lets it go on."""


def no_throttle(context: Context, request: Message) -> int:
    return 0


class Route:
    """One served API; its modules are imported with the first request."""

    __slots__ = (
        "error_response",
        "handle",
        "is_forwarded",
        "needs",
        "request_kind",
        "requests",
        "response_kind",
        "spec",
        "throttles",
        "versions",
    )

    def __init__(self, spec: ApiSpec, *, is_forwarded: bool = False, module: str = "") -> None:
        self.spec = spec
        #: Only the active controller decides it, and this listener is not one of its own.
        self.is_forwarded = is_forwarded
        self.versions = range(spec.min_version, spec.max_version + 1)
        self.requests = 0
        handlers = import_module(f"{api.__name__}.{module or spec.module}")
        self.handle: Handle = handlers.handle
        #: Modules that serve several APIs declare what all of these need.
        self.needs: Needs = handlers.NEEDS if module else handlers.API.needs
        self.request_kind = request_class(spec.key)
        self.response_kind = response_class(spec.key)
        names = {field.name for field in self.response_kind.FIELDS}
        self.throttles = "throttle_time_ms" in names
        self.error_response: ErrorResponse | None = getattr(handlers, "error_response", None)
        if self.error_response is None and "error_code" in names:
            self.error_response = self._plain_error("error_message" in names)

    def _plain_error(self, has_message: bool) -> ErrorResponse:
        kind: Callable[..., Message] = self.response_kind

        def error_response(request: Any, code: ErrorCode, message: str) -> Message:
            if has_message:
                return kind(error_code=code, error_message=message)
            return kind(error_code=code)

        return error_response


class FastPaths(NamedTuple):
    """Serve common requests by comparing bytes."""

    produce: ProducePatterns
    fetch: FetchPatterns


class Router:
    """Makes the frame handlers of one listener's connections."""

    __slots__ = (
        "_routes",
        "_specs",
        "authorizer",
        "broker",
        "fast_paths",
        "frame_bytes_max",
        "link",
        "listener",
        "role",
        "served",
        "shared",
        "throttle",
    )

    def __init__(
        self,
        shared: "SharedServices",
        broker: "Broker | None",
        *,
        listener: str,
        role: str = "broker",
        frame_bytes_max: int = FRAME_BYTES_MAX,
        throttle: Throttle = no_throttle,
        authorizer: Authorizer | None = None,
        served: tuple[ApiSpec, ...] | None = None,
        link: "ControllerLink | None" = None,
        ranges: ApiRanges | None = None,
    ) -> None:
        """`broker`: None for a controller's listener. `role` is what the listener is for, "broker"
        or "controller"; it serves all that `served_apis` finds for that, unless told otherwise.
        `link`: the way to the active controller, for requests on a broker's listener that only it
        can decide. `ranges` narrows the versions that are served, as in an older build.
        `authorizer` decides what clients may do; without one they may do everything."""
        self.shared = shared
        self.broker = broker
        self.listener = listener
        self.role = role
        self.frame_bytes_max = frame_bytes_max
        self.throttle = throttle
        self.authorizer = authorizer
        #: None for controllers, and where there are quotas or permissions, which patterns ignore.
        self.fast_paths: FastPaths | None = None
        if broker is not None and throttle is no_throttle and authorizer is None:
            self.fast_paths = FastPaths(ProducePatterns(broker, listener), FetchPatterns(broker))
        if served is None:
            served = served_apis(role, unstable=shared.config.unstable_api_versions_enable)
        if ranges:
            served = tuple(narrowed(spec, ranges) for spec in served)
        self.served = served
        self._specs = {spec.key: spec for spec in served}
        self.link = link if role == "broker" else None
        self._routes: dict[int, Route] = {}

    def __call__(self, channel: Channel) -> "Session":
        return Session(self, channel.peer)

    def route(self, key: int) -> Route:
        found = self._routes.get(key)
        if found is None:
            if key in API_VERSIONS and self._is_between_brokers(key):
                spec = API_VERSIONS[key]
                found = self._routes[key] = Route(spec, module="partition_votes")
                return found
            served = self._specs.get(key)
            if served is None:
                if key not in UNSERVED or self.role not in API_VERSIONS[key].listeners:
                    raise CloseConnection(f"API {key} is not served on listener {self.listener}")
                found = self._routes[key] = Route(API_VERSIONS[key], module="unsupported_apis")
                return found
            is_forwarded = self.link is not None and key in FORWARDED
            found = self._routes[key] = Route(served, is_forwarded=is_forwarded)
        return found

    @property
    def between_brokers(self) -> list[ApiSpec]:
        """Served here, but told to nodes of Lograft only."""
        return [API_VERSIONS[key] for key in PARTITION_VOTES if self._is_between_brokers(key)]

    def _is_between_brokers(self, key: int) -> bool:
        if self.role != "broker" or key not in PARTITION_VOTES:
            return False
        return self.listener == self.shared.config.inter_broker_listener_name

    def context(
        self,
        key: int,
        version: int,
        *,
        client_id: str | None = None,
        peer: Address = NOBODY,
        principal: str = ANONYMOUS,
        authorizer: Authorizer | None = None,
        when_closed: Callable[[Callable[[], None]], None] | None = None,
    ) -> Context:
        return Context(
            self.shared,
            self.broker,
            api_key=key,
            api_version=version,
            client_id=client_id,
            listener=self.listener,
            role=self.role,
            peer=peer,
            principal=principal,
            served=self.served,
            software=ClientSoftware(),
            authorizer=authorizer,
            router=self,
            when_closed=when_closed,
        )

    async def answer(self, route: Route, context: Context, request: Message) -> Message | None:
        """The handler's answer to a request that came in no frame of its own."""
        route.requests += 1
        try:
            if context.authorizer is not None:
                check_request(context, route.needs, request)
            outcome = route.handle(context, request)
            assert not isinstance(outcome, DelayedResponse), "replicas fetch over connections"
            if outcome is None or type(outcome) is route.response_kind:
                return outcome
            return await cast(Coroutine[Any, Any, Message | None], outcome)
        except Exception as error:
            return _refusal(route, request, error)

    async def call(self, message: Message, version: int) -> Message:
        """A request of this very process, as if it had come over a connection. It needs no
        permission; a request inside its Envelope does."""
        route = self.route(message.KEY)
        response = await self.answer(route, self.context(message.KEY, version), message)
        assert response is not None, message
        return response

    async def answer_forwarded(self, request: Forwarded) -> Message:
        """The controller's response to a request that a broker has forwarded, as if the client had
        sent it here. Raises NotController if this controller is not (any more) the active one."""
        key = request.message.KEY
        context = self.context(
            key,
            request.version,
            client_id=request.client_id,
            peer=request.peer,
            principal=request.principal,
            authorizer=self.authorizer,
        )
        context.is_forwarded = True
        response = await self.answer(self.route(key), context, request.message)
        assert response is not None, "what may be forwarded has an answer"
        if has_error(response, ErrorCode.NOT_CONTROLLER) or (
            key in QUORUM_APIS and has_error(response, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ):
            raise NotController("this node is not the active controller")
        return response

    def collect_samples(self) -> Iterator[Sample]:
        """Only of APIs that were requested: most listeners never see most of them."""
        listener = self.listener
        for route in list(self._routes.values()):
            yield REQUESTS.sample(route.requests, listener, route.spec.name)
        fast = self.fast_paths
        for key, served in (
            (PRODUCE_KEY, 0 if fast is None else fast.produce.served),
            (FETCH_KEY, 0 if fast is None else fast.fetch.served),
        ):
            if key in self._specs:
                api_name = self._specs[key].name
                yield FAST_PATH_REQUESTS.sample(served, listener, api_name)
                # Only the general path counts in its route.
                yield REQUESTS.sample(served, listener, api_name)


def served_apis(
    role: str, *, withheld: frozenset[int] = frozenset(), unstable: bool = False
) -> tuple[ApiSpec, ...]:
    """The APIs that the protocol puts on such a listener and that have a module here. `unstable`:
    also the versions that Kafka may still change, where they are built."""
    modules = {module.name for module in pkgutil.iter_modules(api.__path__)}
    return tuple(
        spec._replace(max_version=spec.unstable_version)
        if unstable and spec.key in UNSTABLE and spec.unstable_version is not None
        else spec
        for spec in API_VERSIONS.values()
        if spec.module in modules and role in spec.listeners and spec.key not in withheld
    )


def narrowed(spec: ApiSpec, ranges: ApiRanges) -> ApiSpec:
    found = ranges.get(spec.key)
    if found is None:
        return spec
    return spec._replace(min_version=found.oldest, max_version=found.newest)


class Session:
    """The frame handler of one connection."""

    __slots__ = ("_at_end", "_peer", "_principal", "_router", "_software", "frame_bytes_max")

    def __init__(self, router: Router, peer: Address) -> None:
        self._router = router
        self._peer = peer
        self._principal = ANONYMOUS
        self._software = ClientSoftware()
        self._at_end: Callable[[], None] | None = None
        self.frame_bytes_max = router.frame_bytes_max

    def handle_frame(self, frame: memoryview) -> Reply:
        fast = self._router.fast_paths
        if len(frame) >= FRAME_BYTES_MIN and not frame[0] and fast is not None:
            # Most requests are a Produce or a Fetch that need no more than this.
            if frame[1] == PRODUCE_KEY:
                reply: Reply = fast.produce.serve(frame)
                if reply is not None:
                    return reply
            elif frame[1] == FETCH_KEY:
                reply = fast.fetch.serve(frame, self._handle)
                if reply is not None:
                    return reply
        return self._handle(frame)

    def _handle(self, frame: memoryview) -> Reply:
        """The general path."""
        router = self._router
        header = read_request_header(frame)
        route = router.route(header.api_key)
        version = header.api_version
        if version not in route.versions:
            return self._refuse_version(route, header)
        route.requests += 1
        request, _ = read(route.request_kind, version, frame, header.body_position)
        fast = router.fast_paths
        if fast is not None:
            if type(request) is ProduceRequest:
                fast.produce.learn(frame, version, header.client_id, request)
            elif type(request) is FetchRequest:
                fast.fetch.learn(frame, version, header.client_id, request)
        context = self._context(header)
        if route.is_forwarded:
            # The frame is ours only during this call. The controller checks the permissions.
            return PendingReply(self._forward(route, header, context, request, bytes(frame)))
        try:
            if context.authorizer is not None:
                check_request(context, route.needs, request)
            outcome = route.handle(context, request)
        except Exception as error:
            return self._answer(route, header, context, request, _refusal(route, request, error))
        return self._reply(route, header, context, request, outcome)

    def _context(self, header: RequestHeader) -> Context:
        router = self._router
        return Context(
            router.shared,
            router.broker,
            api_key=header.api_key,
            api_version=header.api_version,
            client_id=header.client_id,
            listener=router.listener,
            role=router.role,
            peer=self._peer,
            principal=self._principal,
            served=router.served,
            software=self._software,
            authorizer=router.authorizer,
            router=router,
            when_closed=self._when_closed,
        )

    def _reply(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        outcome: HandlerResult,
    ) -> Reply:
        if outcome is None:
            return None
        if type(outcome) is route.response_kind:
            return self._answer(route, header, context, request, outcome)
        if isinstance(outcome, DelayedResponse):
            outcome.frame = partial(self._answer, route, header, context, request)
            return outcome
        work = cast(Coroutine[Any, Any, Message | None], outcome)
        return PendingReply(
            self._finish(route, header, context, request, work), context.allows_pipelining, work
        )

    def on_frames_handled(self) -> None:
        fast = self._router.fast_paths
        if fast is not None and fast.fetch.woken:
            # Readers first: what was produced has been waited for, its acknowledgement less so.
            fast.fetch.woken.run(WOKEN_FIRST_MAX)

    def on_closed(self) -> None:
        at_end, self._at_end = self._at_end, None
        if at_end is not None:
            at_end()

    def _when_closed(self, callback: Callable[[], None]) -> None:
        self._at_end = callback

    async def _forward(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        frame: bytes,
    ) -> EncodedResponse:
        """The active controller's answer; that of another node as it came."""
        try:
            response = await forward_frame(context, request, frame)
        except Exception as error:
            response = _refusal(route, request, error)
        if isinstance(response, bytes):
            mute_ms = self._router.throttle(context, request)
            if mute_ms <= 0 or not route.throttles:
                return EncodedResponse([len(response).to_bytes(4, "big") + response], mute_ms)
            response = read_answer(response, header.api_key, header.api_version)
        return self._answer(route, header, context, request, response)

    async def _finish(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        work: Coroutine[Any, Any, Message | None],
    ) -> EncodedResponse | None:
        try:
            response = await work
        except Exception as error:
            response = _refusal(route, request, error)
        if response is None:
            return None
        return self._answer(route, header, context, request, response)

    def _answer(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        response: Message,
    ) -> EncodedResponse:
        mute_ms = self._router.throttle(context, request)
        if mute_ms > 0 and route.throttles:
            # Told first, muted then (KIP-219): the client can do something else meanwhile.
            cast(Any, response).throttle_time_ms = mute_ms
        try:
            parts = frame_response(
                response,
                header.api_version,
                correlation_id=header.correlation_id,
                header_version=response_header_version(header.api_key, header.api_version),
            )
        except UnwritableMessage:
            LOGGER.exception("%s: an answer cannot be written", route.spec.name)
            raise CloseConnection(f"{route.spec.name} has no answer") from None
        return EncodedResponse(parts, mute_ms)

    def _refuse_version(self, route: Route, header: RequestHeader) -> EncodedResponse:
        """Kafka closes the connection, except for ApiVersions: a newer client asks with its newest
        version first, and is answered in version 0, which everybody reads (KIP-511)."""
        if header.api_key != API_VERSIONS_KEY:
            raise CloseConnection(
                f"{route.spec.name} version {header.api_version} is not supported"
                f" (client id {printable(header.client_id or '')!r})"
            )
        assert route.error_response is not None, "ApiVersions has an error response"
        response = route.error_response(None, ErrorCode.UNSUPPORTED_VERSION, "")
        parts = frame_response(response, 0, correlation_id=header.correlation_id, header_version=0)
        return EncodedResponse(parts)


def _refusal(route: Route, request: Message, error: Exception) -> Message:
    """The response that carries the error, or a reason to close the connection."""
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, LograftError):
        code, message = code_of(error), str(error)
    else:
        # A bug of ours. The log has all of it; the client learns no more than that.
        LOGGER.error("%s failed", route.spec.name, exc_info=error)
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the server has logged an internal error"
    if route.error_response is None:
        raise CloseConnection(f"{route.spec.name} failed and cannot say why: {message}")
    return route.error_response(request, code, message)
