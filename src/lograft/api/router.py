"""Decodes frames, calls handlers and encodes their responses.

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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lograft import api
from lograft.api.authorization import access_key, check_request
from lograft.api.context import ANONYMOUS, ClientSoftware, Context, DelayedResponse
from lograft.api.errors import code_of
from lograft.api.fetch import is_from_replica
from lograft.api.fetch_patterns import FRAME_BYTES_MIN, FetchPatterns
from lograft.api.forwarding import FORWARDED, QUORUM_APIS, forward_frame, read_throttle_ms
from lograft.api.partition_votes import KEYS as PARTITION_VOTES
from lograft.api.produce_patterns import ProducePatterns
from lograft.api.request_times import (
    FAST_INTERVAL,
    FOLLOWER_FETCH,
    GENERAL_INTERVAL,
    RequestTimes,
    RequestTiming,
    interval_after,
    measure_reply,
)
from lograft.api.request_usage import BETWEEN_NODES, MeasuredWork, RequestUsage
from lograft.api.response_errors import ERRORS, ErrorCounts
from lograft.api.sasl_session import SaslSession
from lograft.api.slow_requests import RequestOrigin, SlowRequestLog
from lograft.api.types import Needs
from lograft.api.unsupported_apis import KEYS as UNSERVED
from lograft.broker.errors import NotController
from lograft.broker.links.controller_link import ForwardedRequest, has_error
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import (
    CloseConnection,
    EncodedResponse,
    FrameHandler,
    PendingReply,
    Reply,
)
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
    from lograft.api.authentication import ListenerAuthentication
    from lograft.api.certificate_principals import CertificatePrincipals
    from lograft.api.security_log import SecurityLog
    from lograft.broker.broker import Broker
    from lograft.broker.client_quotas import ClientQuotas
    from lograft.broker.links.controller_link import ControllerLink
    from lograft.broker.shared_services import SharedServices

#: Number of fetches that an append completes before the producer gets its response.
WOKEN_FIRST_MAX: Final = 4
#: socket.request.max.bytes
FRAME_BYTES_MAX: Final = 100 << 20
#: InitProducerId 6: two-phase commit.
UNSTABLE: Final = frozenset({22})
#: The ACL version of a connection that has no access key yet.
NO_VERSION: Final = -1
#: The peer of a request that did not arrive on a connection.
NO_PEER: Final = Address("", 0)

REQUESTS: Final = Counter("lograft_requests_total", "Requests that were handled.", LISTENER, API)
FAST_PATH_REQUESTS: Final = Counter(
    "lograft_fast_path_requests_total",
    "Requests served by the fast path, included in lograft_requests_total.",
    LISTENER,
    API,
)

LOGGER: Final = logging.getLogger(__name__)

HandlerResult = Message | DelayedResponse | Coroutine[Any, Any, Message | None] | None
Handle = Callable[[Context, Any], HandlerResult]
ErrorResponse = Callable[[Any, ErrorCode, str], Message]


class Route:
    """One served API; its modules are imported with the first request."""

    __slots__ = (
        "error_code_since",
        "error_response",
        "errors",
        "follower_times",
        "handle",
        "is_forwarded",
        "needs",
        "request_kind",
        "requests",
        "response_kind",
        "spec",
        "throttles",
        "timed_at",
        "times",
        "versions",
    )

    def __init__(self, spec: ApiSpec, *, is_forwarded: bool = False, module: str = "") -> None:
        self.spec = spec
        #: Only the active controller can handle it, and this is not a controller's listener.
        self.is_forwarded = is_forwarded
        self.versions = range(spec.min_version, spec.max_version + 1)
        self.requests = 0
        #: The number of requests after which the next one is measured.
        self.timed_at = 0
        self.times = RequestTimes(spec.name)
        self.follower_times = RequestTimes(FOLLOWER_FETCH) if spec.key == FETCH_KEY else None
        handlers = import_module(f"{api.__name__}.{module or spec.module}")
        self.handle: Handle = handlers.handle
        #: Modules that serve several APIs declare what all of these need.
        self.needs: Needs = handlers.NEEDS if module else handlers.API.needs
        self.request_kind = request_class(spec.key)
        self.response_kind = response_class(spec.key)
        self.errors = ErrorCounts(spec.name, self.response_kind)
        names = {field.name for field in self.response_kind.FIELDS}
        self.throttles = "throttle_time_ms" in names
        self.error_response: ErrorResponse | None = getattr(handlers, "error_response", None)
        if self.error_response is None and "error_code" in names:
            self.error_response = self._build_error_response("error_message" in names)
        #: The first version whose responses have an error code of the whole request.
        self.error_code_since = max(
            (
                field.since
                for field in self.response_kind.FIELDS
                if field.name == "error_code" and not field.ignorable
            ),
            default=0,
        )

    def collect_samples(self) -> Iterator[Sample]:
        yield from self.times.collect_samples()
        if self.follower_times is not None:
            yield from self.follower_times.collect_samples()
        yield from self.errors.collect_samples()

    def _build_error_response(self, has_message: bool) -> ErrorResponse:
        kind: Callable[..., Message] = self.response_kind

        def error_response(request: Any, code: ErrorCode, message: str) -> Message:
            if has_message:
                return kind(error_code=code, error_message=message)
            return kind(error_code=code)

        return error_response


class FastPaths(NamedTuple):
    """Serve frequent requests by comparing bytes."""

    produce: ProducePatterns
    fetch: FetchPatterns


class Router:
    """Creates the frame handlers for the connections of one listener."""

    __slots__ = (
        "_is_traced",
        "_patterns",
        "_routes",
        "_specs",
        "authentication",
        "authorizer",
        "broker",
        "certificates",
        "fast_paths",
        "frame_bytes_max",
        "link",
        "listener",
        "quotas",
        "role",
        "security_log",
        "served",
        "shared",
        "slow_requests",
    )

    def __init__(
        self,
        shared: "SharedServices",
        broker: "Broker | None",
        *,
        listener: str,
        role: str = "broker",
        frame_bytes_max: int = FRAME_BYTES_MAX,
        quotas: "ClientQuotas | None" = None,
        security_log: "SecurityLog | None" = None,
        certificates: "CertificatePrincipals | None" = None,
        authorizer: Authorizer | None = None,
        authentication: "ListenerAuthentication | None" = None,
        served: tuple[ApiSpec, ...] | None = None,
        link: "ControllerLink | None" = None,
        ranges: ApiRanges | None = None,
    ) -> None:
        """`broker`: None for a controller's listener. `role` is "broker" or "controller"; the
        listener serves `served`, by default all APIs that `served_apis` returns for the role.
        `link` forwards requests of a broker's listener that only the active controller can handle.
        `ranges` limits the versions that are served, as in an older release. `authorizer` decides
        what clients may do; without one they may do everything. `quotas` limits how much they
        use."""
        self.shared = shared
        self.broker = broker
        self.listener = listener
        self.slow_requests = SlowRequestLog(lambda: shared.config.lograft_slow_request_ms, listener)
        self.role = role
        self.frame_bytes_max = frame_bytes_max
        self.quotas = quotas
        self.security_log = security_log
        #: For a TLS listener; otherwise None.
        self.certificates = certificates
        self.authorizer = authorizer
        #: SASL of the listener; None: clients are not authenticated by SASL.
        self.authentication = authentication
        #: None for controllers.
        self._patterns: FastPaths | None = None
        if broker is not None:
            self._patterns = FastPaths(
                ProducePatterns(broker, listener), FetchPatterns(broker, authorizer)
            )
        #: The same; None while quotas are configured or records are traced, which only the general
        #: path does.
        self.fast_paths = self._patterns
        self._is_traced = broker is not None and broker.traces is not None
        if quotas is not None:
            quotas.on_activity_changed.append(self._choose_paths)
        self._choose_paths()
        if served is None:
            served = served_apis(role, unstable=shared.config.unstable_api_versions_enable)
        if ranges:
            served = tuple(narrow(spec, ranges) for spec in served)
        self.served = served
        self._specs = {spec.key: spec for spec in served}
        self.link = link if role == "broker" else None
        self._routes: dict[int, Route] = {}

    def _choose_paths(self) -> None:
        is_measured = self.quotas is not None and self.quotas.is_active
        self.fast_paths = None if is_measured or self._is_traced else self._patterns

    def __call__(self, channel: Channel) -> "Session":
        """Returns the handler of a connection that needs no authentication."""
        return Session(self, channel.peer)

    def accept(self, channel: Channel) -> FrameHandler:
        """Returns the handler of a connection that a client has opened."""
        session = self(channel)
        if self.certificates is not None:
            sasl = self.authentication is not None
            self.certificates.identify(cast(Any, channel), None if sasl else session)
        if self.authentication is None:
            return session
        return SaslSession(session, channel, self.authentication)

    def route(self, key: int) -> Route:
        route = self._routes.get(key)
        if route is None:
            if key in API_VERSIONS and self._is_between_brokers(key):
                spec = API_VERSIONS[key]
                route = self._routes[key] = Route(spec, module="partition_votes")
                return route
            served = self._specs.get(key)
            if served is None:
                if key not in UNSERVED or self.role not in API_VERSIONS[key].listeners:
                    raise CloseConnection(f"API {key} is not served on listener {self.listener}")
                route = self._routes[key] = Route(API_VERSIONS[key], module="unsupported_apis")
                return route
            is_forwarded = self.link is not None and key in FORWARDED
            route = self._routes[key] = Route(served, is_forwarded=is_forwarded)
        return route

    @property
    def between_brokers(self) -> list[ApiSpec]:
        """The APIs that are served here but advertised to Lograft nodes only."""
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
        peer: Address = NO_PEER,
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

    async def handle(self, route: Route, context: Context, request: Message) -> Message | None:
        """Returns the handler's response to a request that did not arrive in a frame."""
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
            return _error_response(route, request, error, context.api_version)

    async def call(self, message: Message, version: int) -> Message:
        """Handles a request of this process as if it had arrived on a connection. It needs no
        permission; a request inside its Envelope does."""
        route = self.route(message.KEY)
        response = await self.handle(route, self.context(message.KEY, version), message)
        assert response is not None, message
        return response

    async def handle_forwarded(self, request: ForwardedRequest) -> Message:
        """Returns the controller's response to a request that a broker has forwarded, as if the
        client had sent it to this node. Raises NotController if this is not the active one."""
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
        context.with_token = request.with_token
        response = await self.handle(self.route(key), context, request.message)
        assert response is not None, "every request that may be forwarded has a response"
        if has_error(response, ErrorCode.NOT_CONTROLLER) or (
            key in QUORUM_APIS and has_error(response, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ):
            raise NotController("this node is not the active controller")
        return response

    def collect_samples(self) -> Iterator[Sample]:
        """Includes only APIs that were requested: most listeners never get most of them."""
        yield from self.slow_requests.collect_samples()
        listener = self.listener
        for route in list(self._routes.values()):
            yield REQUESTS.sample(route.requests, listener, route.spec.name)
            yield from route.collect_samples()
        fast = self._patterns
        for key, served in (
            (PRODUCE_KEY, 0 if fast is None else fast.produce.served),
            (FETCH_KEY, 0 if fast is None else fast.fetch.served),
        ):
            if key in self._specs:
                api_name = self._specs[key].name
                yield FAST_PATH_REQUESTS.sample(served, listener, api_name)
                # Route.requests counts only the general path.
                yield REQUESTS.sample(served, listener, api_name)
        if fast is not None:
            for code, count in list(fast.produce.errors.items()):
                yield ERRORS.sample(count, self._specs[PRODUCE_KEY].name, code.name)


def served_apis(
    role: str, *, withheld: frozenset[int] = frozenset(), unstable: bool = False
) -> tuple[ApiSpec, ...]:
    """Returns the APIs that the protocol has on such a listener and that have a module here.
    `unstable`: with versions that Kafka may still change, if Lograft implements them."""
    modules = {module.name for module in pkgutil.iter_modules(api.__path__)}
    return tuple(
        spec._replace(max_version=spec.unstable_version)
        if unstable and spec.key in UNSTABLE and spec.unstable_version is not None
        else spec
        for spec in API_VERSIONS.values()
        if spec.module in modules and role in spec.listeners and spec.key not in withheld
    )


def narrow(spec: ApiSpec, ranges: ApiRanges) -> ApiSpec:
    versions = ranges.get(spec.key)
    if versions is None:
        return spec
    return spec._replace(min_version=versions.oldest, max_version=versions.newest)


class Session:
    """The frame handler of one connection."""

    __slots__ = (
        "_access",
        "_access_version",
        "_on_end",
        "_peer",
        "_principal",
        "_router",
        "_software",
        "_with_token",
        "frame_bytes_max",
        "received_ns",
    )

    def __init__(self, router: Router, peer: Address) -> None:
        self._router = router
        self._peer = peer
        self._principal = ANONYMOUS
        self._with_token = False
        self._software = ClientSoftware()
        #: Selects the patterns of the principal at this host, which contain its permissions in this
        #: version of the ACLs. Without an authorizer all connections share theirs.
        self._access = b""
        self._access_version = NO_VERSION
        self._on_end: Callable[[], None] | None = None
        self.frame_bytes_max = router.frame_bytes_max
        self.received_ns = 0

    def authenticate_as(self, principal: str, *, with_token: bool = False) -> None:
        """Sets the principal of the following requests: "User:alice"."""
        self._principal = principal
        self._with_token = with_token
        self._access_version = NO_VERSION

    def handle_frame(self, frame: memoryview) -> Reply:
        router = self._router
        fast = router.fast_paths
        if len(frame) >= FRAME_BYTES_MIN and not frame[0] and fast is not None:
            authorizer = router.authorizer
            if authorizer is not None and authorizer.version != self._access_version:
                self._renew_access(authorizer)
            # Most requests are a Produce or Fetch that the fast path can serve.
            if frame[1] == PRODUCE_KEY:
                produce = fast.produce
                reply: Reply = (
                    produce.serve(frame, self._access)
                    if produce.served < produce.timed_at
                    else self._serve_timed(
                        produce,
                        PRODUCE_KEY,
                        partial(produce.serve, frame, self._access),
                        frame,
                    )
                )
                if reply is not None:
                    return reply
            elif frame[1] == FETCH_KEY:
                fetch = fast.fetch
                reply = (
                    fetch.serve(frame, self._access, self._handle)
                    if fetch.served < fetch.timed_at
                    else self._serve_timed(
                        fetch,
                        FETCH_KEY,
                        partial(fetch.serve, frame, self._access, self._handle),
                        frame,
                    )
                )
                if reply is not None:
                    return reply
        return self._handle(frame)

    def _renew_access(self, authorizer: Authorizer) -> None:
        self._access_version = authorizer.version
        self._access = access_key(self._principal, self._peer.host, authorizer.version)

    def _serve_timed(
        self,
        patterns: ProducePatterns | FetchPatterns,
        key: int,
        serve: Callable[[], Reply],
        frame: memoryview,
    ) -> Reply:
        """Measures a request of the fast path."""
        router = self._router
        mono_ns = router.shared.clock.mono_ns
        from_ns = mono_ns()
        reply = serve()
        if reply is None:
            # The next one is measured instead.
            return None
        served = patterns.served
        count, patterns.measured = served - patterns.measured, served
        is_logged = router.slow_requests.is_enabled
        interval = 1 if is_logged else FAST_INTERVAL
        patterns.timed_at = served - 1 + interval_after(served, interval)
        timing = RequestTiming(
            router.route(key).times, mono_ns, self.received_ns, from_ns=from_ns, count=count
        )
        if is_logged:
            self._log_if_slow(timing, read_request_header(frame))
        return measure_reply(reply, timing)

    def _handle(self, frame: memoryview) -> Reply:
        """The general path."""
        router = self._router
        quotas = router.quotas
        from_ns = None
        if quotas is not None and quotas.is_active:
            from_ns = router.shared.clock.mono_ns()
        header = read_request_header(frame)
        route = router.route(header.api_key)
        version = header.api_version
        if version not in route.versions:
            return self._reject_version(route, header)
        timing = None
        if route.requests >= route.timed_at:
            timing = self._start_timing(route, header)
        route.requests += 1
        request, _ = read(route.request_kind, version, frame, header.body_position)
        context = self._context(header)
        fast = router.fast_paths
        if fast is not None:
            if type(request) is ProduceRequest:
                fast.produce.learn(frame, context, request, self._access)
            elif type(request) is FetchRequest:
                fast.fetch.learn(frame, context, request, self._access)
        if from_ns is not None:
            self._start_usage(context, request, size_bytes=len(frame), from_ns=from_ns)
        if timing is not None:
            if type(request) is FetchRequest and is_from_replica(request):
                assert route.follower_times is not None
                timing.times = route.follower_times
            context.timing = timing
        if route.is_forwarded:
            # The frame is valid only during this call. The controller checks the permissions.
            if timing is not None:
                timing.on_waiting()
            return PendingReply(self._forward(route, header, context, request, bytes(frame)))
        try:
            if context.authorizer is not None:
                check_request(context, route.needs, request)
            outcome = route.handle(context, request)
        except Exception as error:
            return self._encode(
                route,
                header,
                context,
                request,
                _error_response(route, request, error, header.api_version),
            )
        return self._reply(route, header, context, request, outcome)

    def _start_usage(
        self, context: Context, request: Message, *, size_bytes: int, from_ns: int
    ) -> None:
        """Measures the request, unless a node sent it or the controller will count it."""
        router = self._router
        key = context.api_key
        if key in BETWEEN_NODES or router.route(key).is_forwarded:
            return
        if type(request) is FetchRequest and is_from_replica(request):
            return
        assert router.quotas is not None
        context.usage = RequestUsage(
            router.quotas,
            router.shared.clock,
            principal=context.principal,
            client_id=context.client_id,
            size_bytes=size_bytes,
            from_ns=from_ns,
        )

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
            with_token=self._with_token,
        )

    def _reply(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        outcome: HandlerResult,
    ) -> Reply:
        timing = context.timing
        if outcome is None:
            if timing is not None:
                timing.on_completed()
                timing.on_sent()
            return None if context.usage is None else _mute(context.usage.record(request))
        if type(outcome) is route.response_kind:
            return self._encode(route, header, context, request, outcome)
        if timing is not None:
            timing.on_waiting()
        if context.usage is not None:
            context.usage.pause()
        if isinstance(outcome, DelayedResponse):
            outcome.encode = partial(self._encode, route, header, context, request)
            return outcome
        work = cast(Coroutine[Any, Any, Message | None], outcome)
        return PendingReply(
            self._finish(route, header, context, request, work), context.allows_pipelining, work
        )

    def on_frames_handled(self) -> None:
        fast = self._router.fast_paths
        if fast is not None and fast.fetch.woken:
            # Consumers first: they wait for the records, the producer can wait for its response.
            fast.fetch.woken.run(WOKEN_FIRST_MAX)

    def on_closed(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _when_closed(self, callback: Callable[[], None]) -> None:
        self._on_end = callback

    async def _forward(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        frame: bytes,
    ) -> EncodedResponse:
        """Returns the active controller's response; another node's response is not decoded."""
        try:
            response = await forward_frame(context, request, frame)
        except Exception as error:
            response = _error_response(route, request, error, context.api_version)
        if isinstance(response, bytes):
            # As in Kafka, the controller has measured the request.
            mute_ms = read_throttle_ms(response, header.api_key, header.api_version)
            if context.timing is not None:
                context.timing.on_completed()
            size = len(response).to_bytes(4, "big")
            return EncodedResponse([size + response], mute_ms, timing=context.timing)
        return self._encode(route, header, context, request, response)

    async def _finish(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        work: Coroutine[Any, Any, Message | None],
    ) -> EncodedResponse | None:
        usage = context.usage
        try:
            response = await (work if usage is None else MeasuredWork(work, usage))
        except Exception as error:
            response = _error_response(route, request, error, context.api_version)
        if response is None:
            if context.timing is not None:
                context.timing.on_completed()
                context.timing.on_sent()
            return None if usage is None else _mute(usage.record(request))
        return self._encode(route, header, context, request, response)

    def _encode(
        self,
        route: Route,
        header: RequestHeader,
        context: Context,
        request: Message,
        response: Message,
    ) -> EncodedResponse:
        timing = context.timing
        if timing is not None:
            timing.on_completed()
        route.errors.add_all_of(response)
        mute_ms = 0 if context.usage is None else context.usage.record(request)
        if route.throttles:
            # The response reports the throttle time before the connection is muted (KIP-219).
            # That of a quota for changes to partitions is in it already.
            throttled: Any = response
            if throttled.throttle_time_ms > mute_ms:
                mute_ms = throttled.throttle_time_ms
            elif mute_ms:
                throttled.throttle_time_ms = mute_ms
        try:
            parts = frame_response(
                response,
                header.api_version,
                correlation_id=header.correlation_id,
                header_version=response_header_version(header.api_key, header.api_version),
            )
        except UnwritableMessage:
            LOGGER.exception("The response to a %s request cannot be encoded.", route.spec.name)
            raise CloseConnection(f"{route.spec.name} has no response") from None
        return EncodedResponse(parts, mute_ms, timing=timing)

    def _start_timing(self, route: Route, header: RequestHeader) -> RequestTiming:
        is_logged = self._router.slow_requests.is_enabled
        count = 1 if is_logged else interval_after(route.requests, GENERAL_INTERVAL)
        route.timed_at = route.requests + count
        mono_ns = self._router.shared.clock.mono_ns
        timing = RequestTiming(
            route.times, mono_ns, self.received_ns, from_ns=mono_ns(), count=count
        )
        if is_logged:
            self._log_if_slow(timing, header)
        return timing

    def _log_if_slow(self, timing: RequestTiming, header: RequestHeader) -> None:
        timing.slow_requests = self._router.slow_requests
        timing.origin = RequestOrigin(
            header.api_key, header.api_version, header.client_id, self._peer, self._principal
        )

    def _reject_version(self, route: Route, header: RequestHeader) -> EncodedResponse:
        """Like Kafka, closes the connection except for ApiVersions: a newer client sends its newest
        version first, and gets a response in version 0, which every client can read (KIP-511)."""
        if header.api_key != API_VERSIONS_KEY:
            raise CloseConnection(
                f"{route.spec.name} version {header.api_version} is not supported"
                f" (client id {printable(header.client_id or '')!r})"
            )
        assert route.error_response is not None, "ApiVersions has an error response"
        response = route.error_response(None, ErrorCode.UNSUPPORTED_VERSION, "")
        route.errors.add_all_of(response)
        parts = frame_response(response, 0, correlation_id=header.correlation_id, header_version=0)
        return EncodedResponse(parts)


def _mute(throttle_ms: int) -> EncodedResponse | None:
    """Returns what a request without a response leaves behind."""
    return EncodedResponse((), throttle_ms) if throttle_ms > 0 else None


def _error_response(route: Route, request: Message, error: Exception, version: int) -> Message:
    """Returns the response for the error, or raises CloseConnection."""
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, LograftError):
        code, message = code_of(error), str(error)
    else:
        # A bug in Lograft. The log has the details; the client gets only a general message.
        LOGGER.error("%s failed", route.spec.name, exc_info=error)
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "Internal error, see the server log."
    if route.error_response is None:
        raise CloseConnection(f"{route.spec.name} failed without an error response: {message}")
    response: Any = route.error_response(request, code, message)
    if version < route.error_code_since:
        # As in Kafka, only the items of the request carry the error, if it has any.
        response.error_code = ErrorCode.NONE
    return cast(Message, response)
