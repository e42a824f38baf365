"""Requests from a broker to the active controller.

A request is retried until an active controller has responded: the one in this process, without a
socket, or the leader of the quorum at its address. After NOT_CONTROLLER and after a lost or refused
connection the link looks up the leader of the quorum again. A request may therefore reach two
controllers in turn, so it must be idempotent, and no controller may change the request object.

Requests of clients are forwarded: decoded to the controller in this process, in an Envelope to any
other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from lograft.broker.errors import ControllerUnreachable, NotController, PeerLost, PeerUnreachable
from lograft.broker.links.peers import Peers
from lograft.model.errors import ErrorCode
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Address, Runtime
from lograft.wire.apis import ApiRanges, Versions
from lograft.wire.message import Field, Message, has_own_tags
from lograft.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

ENVELOPE_VERSIONS: Final = Versions(0, 0)

#: Time limit of one attempt: the machine of a slower controller may be suspended.
ATTEMPT_MS_MAX: Final = 10_000
#: Backoff between attempts to the same controller, which grows from the first to the second value.
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 500
#: Interval of checks for a new controller while a request waits for the old one.
LOOK_MS: Final = 25
#: Minimum time between two log lines about a controller that does not respond.
LOG_INTERVAL_MS: Final = 10_000

REQUESTS: Final = Counter(
    "lograft_controller_requests_total", "Requests of this node to the active controller."
)
REPEATS: Final = Counter(
    "lograft_controller_request_retries_total",
    "Requests to the active controller that were sent again.",
)


class QuorumPort(Protocol):
    """The part of the metadata quorum that the link needs (broker/quorum/raft_driver.py)."""

    @property
    def is_leader(self) -> bool: ...

    def leader_endpoint(self) -> Address | None:
        """Returns the address of the leader's controller listener; None if no leader is known."""


class ForwardedRequest(NamedTuple):
    """A client's request, with the client's properties that an Envelope contains."""

    message: Message
    version: int
    client_id: str | None
    principal: str
    #: Address of the client, without a port.
    peer: Address
    #: The client has authenticated with a delegation token.
    with_token: bool = False


class LocalController(Protocol):
    """The controller in this process (the router of its listener)."""

    def call(self, message: Message, version: int) -> Awaitable[Message]:
        """Returns the response to a request of this node, with NOT_CONTROLLER in it if the
        controller is no longer active."""

    def handle_forwarded(self, request: ForwardedRequest) -> Awaitable[Message]:
        """Returns the response to a client's request. Raises NotController."""


class _ThisProcess:
    """Stands for the address of a controller in this process."""

    def __repr__(self) -> str:
        return "this process"


THIS_PROCESS: Final = _ThisProcess()
Attempt = Callable[[Address | _ThisProcess, int], Awaitable[R]]


class ControllerLink:
    def __init__(
        self,
        runtime: Runtime,
        quorum: QuorumPort,
        peers: Peers,
        *,
        listener: str = "",
        local_controller: LocalController | None = None,
    ) -> None:
        """`listener` is the name of the controllers' listener. `local_controller` is None on a node
        that is not a controller."""
        self._runtime = runtime
        self._quorum = quorum
        self._peers = peers
        self._listener = listener
        self.local_controller = local_controller
        self._logged_ms = -LOG_INTERVAL_MS
        self._requests = 0
        self._repeats = 0

    @property
    def is_local(self) -> bool:
        """Whether the active controller is in this process."""
        return self._quorum.is_leader and self.local_controller is not None

    def served_versions(self) -> ApiRanges | None:
        """Returns the API versions that the active controller supports; None if it is in this
        process, or if there is no connection to it."""
        target = self._find_active()
        if target is None or isinstance(target, _ThisProcess):
            return None
        return self._peers.served_by(target, listener=self._listener)

    async def request(
        self,
        message: Message,
        versions: Versions,
        response_type: type[R],
        *,
        timeout_ms: int | None = None,
        attempt_ms: int = ATTEMPT_MS_MAX,
        lane: str = "control",
        lograft_only: bool = False,
    ) -> R:
        """Returns the active controller's response. Raises ControllerUnreachable after the timeout;
        without one it retries until it is cancelled. `attempt_ms` is the time after which a request
        without a response is sent again. `lograft_only`: see `Peers.request`."""

        async def attempt(target: Address | _ThisProcess, timeout_ms: int) -> R:
            if isinstance(target, _ThisProcess):
                assert self.local_controller is not None
                reply = cast(R, await self.local_controller.call(message, versions.newest))
            else:
                reply = await self._peers.request(
                    target,
                    message,
                    versions,
                    response_type,
                    timeout_ms=timeout_ms,
                    lane=lane,
                    lograft_only=lograft_only,
                    listener=self._listener,
                )
            return _reject_not_controller(reply, target)

        return await self._send_to_active(
            attempt, type(message).__name__, timeout_ms=timeout_ms, attempt_ms=attempt_ms
        )

    async def forward(
        self,
        request: ForwardedRequest,
        make_envelope: Callable[[], EnvelopeRequest],
        *,
        timeout_ms: int,
        lane: str,
    ) -> Message:
        """Returns the response from the controller in this process, or the EnvelopeResponse of
        another. Raises ControllerUnreachable."""

        async def attempt(target: Address | _ThisProcess, timeout_ms: int) -> Message:
            if isinstance(target, _ThisProcess):
                assert self.local_controller is not None
                return await self.local_controller.handle_forwarded(request)
            reply = await self._peers.request(
                target,
                make_envelope(),
                ENVELOPE_VERSIONS,
                EnvelopeResponse,
                timeout_ms=timeout_ms,
                lane=lane,
                lograft_only=has_own_tags(request.message),
                listener=self._listener,
            )
            return _reject_not_controller(reply, target)

        name = type(request.message).__name__
        return await self._send_to_active(
            attempt, name, timeout_ms=timeout_ms, attempt_ms=ATTEMPT_MS_MAX
        )

    async def _send_to_active(
        self, attempt: Attempt[R], name: str, *, timeout_ms: int | None, attempt_ms: int
    ) -> R:
        """Retries until an active controller responds; `attempt` raises NotController if it is not
        active."""
        clock = self._runtime.clock
        deadline_ms = None if timeout_ms is None else clock.mono_ms() + timeout_ms
        pause_ms = PAUSE_MS_MIN
        self._requests += 1
        while True:
            target = self._find_active()
            left_ms = attempt_ms if deadline_ms is None else deadline_ms - clock.mono_ms()
            reason = "the quorum has no leader"
            if target is not None and left_ms > 0:
                try:
                    return await self._attempt(target, attempt, timeout_ms=min(left_ms, attempt_ms))
                except (PeerUnreachable, PeerLost, NotController) as error:
                    reason = str(error)
            self._repeats += 1
            self._log_waiting(name, reason)
            if deadline_ms is not None and clock.mono_ms() + pause_ms >= deadline_ms:
                raise ControllerUnreachable(
                    f"no active controller responded within {timeout_ms} ms: {reason}"
                )
            if await self._pause(target, pause_ms):
                pause_ms = PAUSE_MS_MIN
            else:
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    def _find_active(self) -> Address | _ThisProcess | None:
        return THIS_PROCESS if self.is_local else self._quorum.leader_endpoint()

    async def _attempt(
        self, target: Address | _ThisProcess, attempt: Attempt[R], *, timeout_ms: int
    ) -> R:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        moved = False

        def look() -> None:
            nonlocal timer, moved
            if self._has_moved(target):
                moved = True
                limit.reschedule(loop.time())
            else:
                timer = loop.call_later(LOOK_MS / 1000, look)

        try:
            async with asyncio.timeout(timeout_ms / 1000) as limit:
                timer = loop.call_later(LOOK_MS / 1000, look)
                return await attempt(target, timeout_ms)
        except TimeoutError:
            reason = "another controller took over" if moved else f"none within {timeout_ms} ms"
            raise PeerLost(f"no response from {target}: {reason}") from None
        finally:
            if timer is not None:
                timer.cancel()

    def _has_moved(self, tried: Address | _ThisProcess | None) -> bool:
        target = self._find_active()
        return target is not None and target != tried

    async def _pause(self, tried: Address | _ThisProcess | None, pause_ms: int) -> bool:
        """Waits for the backoff. Returns True at once when the quorum has another leader."""
        clock = self._runtime.clock
        until_ms = clock.mono_ms() + pause_ms
        while not self._has_moved(tried):
            left_ms = until_ms - clock.mono_ms()
            if left_ms <= 0:
                return False
            await asyncio.sleep(min(left_ms, LOOK_MS) / 1000)
        return True

    def _log_waiting(self, name: str, reason: str) -> None:
        now_ms = self._runtime.clock.mono_ms()
        if now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            LOGGER.info("%s is waiting for the controller: %s", name, reason)

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)
        yield REPEATS.sample(self._repeats)


def _reject_not_controller(reply: R, target: Address | _ThisProcess) -> R:
    if has_error(reply, ErrorCode.NOT_CONTROLLER):
        raise NotController(f"{target} is not the active controller")
    return reply


def has_error(message: Message, code: ErrorCode) -> bool:
    """Whether a response contains the code anywhere: some responses have one error code, others one
    for each requested item."""
    for field in _fields_with_errors(type(message)):
        value: Any = getattr(message, field.name)
        if field.name == "error_code":
            if value == code:
                return True
        elif field.kind == "array":
            if any(has_error(element, code) for element in value or ()):
                return True
        elif value is not None and has_error(value, code):
            return True
    return False


@cache
def _fields_with_errors(kind: type[Message]) -> tuple[Field, ...]:
    """Returns the error code field of a message and the fields that contain error codes."""
    return tuple(
        field
        for field in kind.FIELDS
        if field.name == "error_code"
        or (isinstance(field.element, type) and _fields_with_errors(field.element))
    )
