"""The way of a broker to the active controller, wherever it is.

A request is tried until an active controller has answered it: in this process without a socket, or
at the address that the quorum names. Who is not active answers NOT_CONTROLLER; that, a lost
connection and a refused one lead to a new look at the quorum. A request may therefore reach two
controllers one after the other: what it asks for must be safe to ask twice, and no controller may
change the request itself.

A client's request is forwarded: as it was decoded to the controller in this process, in an Envelope
to any other.
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

#: One attempt; a controller that takes longer may have been stopped by its machine.
ATTEMPT_MS_MAX: Final = 10_000
#: Pauses between attempts at the same place grow from the one to the other.
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 500
#: How soon a new controller is noticed while something waits for the old one.
LOOK_MS: Final = 25
#: At most one line in this time says that the controller does not answer.
LOG_INTERVAL_MS: Final = 10_000

REQUESTS: Final = Counter(
    "lograft_controller_requests_total", "Requests of this node to the active controller."
)
REPEATS: Final = Counter(
    "lograft_controller_request_retries_total",
    "Requests to the active controller that were sent again.",
)


class QuorumPort(Protocol):
    """What the link asks of the metadata quorum (broker/quorum/raft_driver.py)."""

    @property
    def is_leader(self) -> bool: ...

    def leader_endpoint(self) -> Address | None:
        """Where the leader of the quorum listens for controller requests, if one is known."""


class Forwarded(NamedTuple):
    """A client's request with what an Envelope tells the controller about it."""

    message: Message
    version: int
    client_id: str | None
    principal: str
    #: The client's, without a port.
    peer: Address


class LocalController(Protocol):
    """This node's own controller (the router of its listener)."""

    def call(self, message: Message, version: int) -> Awaitable[Message]:
        """The response to a request of this node, with NOT_CONTROLLER inside if the controller has
        stopped being the active one."""

    def handle_forwarded(self, request: Forwarded) -> Awaitable[Message]:
        """The response to a client's request. Raises NotController."""


class _Here:
    """In the place of an address: the active controller is in this process."""

    def __repr__(self) -> str:
        return "this process"


HERE: Final = _Here()
Ask = Callable[[Address | _Here, int], Awaitable[R]]


class ControllerLink:
    def __init__(
        self,
        runtime: Runtime,
        quorum: QuorumPort,
        peers: Peers,
        *,
        listener: str = "",
        here: LocalController | None = None,
    ) -> None:
        """`listener`: the name under which controllers listen. `here`: None on a node that is no
        controller."""
        self._runtime = runtime
        self._quorum = quorum
        self._peers = peers
        self._listener = listener
        self.here = here
        self._logged_ms = -LOG_INTERVAL_MS
        self._requests = 0
        self._repeats = 0

    @property
    def is_here(self) -> bool:
        """Whether the active controller is in this process."""
        return self._quorum.is_leader and self.here is not None

    def served_versions(self) -> ApiRanges | None:
        """The versions that the active controller serves; None if it is in this process, or if
        there is no connection to it."""
        where = self._where()
        if where is None or isinstance(where, _Here):
            return None
        return self._peers.served_by(where, listener=self._listener)

    async def request(
        self,
        message: Message,
        versions: Versions,
        answer: type[R],
        *,
        timeout_ms: int | None = None,
        attempt_ms: int = ATTEMPT_MS_MAX,
        lane: str = "control",
        lograft_only: bool = False,
    ) -> R:
        """The answer of the active controller. Raises ControllerUnreachable when the time is over;
        without a timeout it tries until it is cancelled. `attempt_ms`: how long one controller may
        take to answer before it is asked again. `lograft_only`: see `Peers.request`."""

        async def ask(where: Address | _Here, timeout_ms: int) -> R:
            if isinstance(where, _Here):
                assert self.here is not None
                reply = cast(R, await self.here.call(message, versions.newest))
            else:
                reply = await self._peers.request(
                    where,
                    message,
                    versions,
                    answer,
                    timeout_ms=timeout_ms,
                    lane=lane,
                    lograft_only=lograft_only,
                    listener=self._listener,
                )
            return _checked(reply, where)

        return await self._ask_active(
            ask, type(message).__name__, timeout_ms=timeout_ms, attempt_ms=attempt_ms
        )

    async def forward(
        self,
        request: Forwarded,
        make_envelope: Callable[[], EnvelopeRequest],
        *,
        timeout_ms: int,
        lane: str,
    ) -> Message:
        """The response of this node's own controller, or the EnvelopeResponse of another. Raises
        ControllerUnreachable."""

        async def ask(where: Address | _Here, timeout_ms: int) -> Message:
            if isinstance(where, _Here):
                assert self.here is not None
                return await self.here.handle_forwarded(request)
            reply = await self._peers.request(
                where,
                make_envelope(),
                ENVELOPE_VERSIONS,
                EnvelopeResponse,
                timeout_ms=timeout_ms,
                lane=lane,
                lograft_only=has_own_tags(request.message),
                listener=self._listener,
            )
            return _checked(reply, where)

        name = type(request.message).__name__
        return await self._ask_active(ask, name, timeout_ms=timeout_ms, attempt_ms=ATTEMPT_MS_MAX)

    async def _ask_active(
        self, ask: Ask[R], name: str, *, timeout_ms: int | None, attempt_ms: int
    ) -> R:
        """Asks until a controller was active; `ask` raises NotController if it was not."""
        clock = self._runtime.clock
        deadline_ms = None if timeout_ms is None else clock.mono_ms() + timeout_ms
        pause_ms = PAUSE_MS_MIN
        self._requests += 1
        while True:
            where = self._where()
            left_ms = attempt_ms if deadline_ms is None else deadline_ms - clock.mono_ms()
            reason = "the quorum has no leader"
            if where is not None and left_ms > 0:
                try:
                    return await self._try(where, ask, timeout_ms=min(left_ms, attempt_ms))
                except (PeerUnreachable, PeerLost, NotController) as error:
                    reason = str(error)
            self._repeats += 1
            self._say(name, reason)
            if deadline_ms is not None and clock.mono_ms() + pause_ms >= deadline_ms:
                raise ControllerUnreachable(
                    f"no active controller responded within {timeout_ms} ms: {reason}"
                )
            if await self._pause(where, pause_ms):
                pause_ms = PAUSE_MS_MIN
            else:
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    def _where(self) -> Address | _Here | None:
        return HERE if self.is_here else self._quorum.leader_endpoint()

    async def _try(self, where: Address | _Here, ask: Ask[R], *, timeout_ms: int) -> R:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        moved = False

        def look() -> None:
            nonlocal timer, moved
            if self._has_moved(where):
                moved = True
                limit.reschedule(loop.time())
            else:
                timer = loop.call_later(LOOK_MS / 1000, look)

        try:
            async with asyncio.timeout(timeout_ms / 1000) as limit:
                timer = loop.call_later(LOOK_MS / 1000, look)
                return await ask(where, timeout_ms)
        except TimeoutError:
            why = "another controller took over" if moved else f"none within {timeout_ms} ms"
            raise PeerLost(f"no response from {where}: {why}") from None
        finally:
            if timer is not None:
                timer.cancel()

    def _has_moved(self, tried: Address | _Here | None) -> bool:
        where = self._where()
        return where is not None and where != tried

    async def _pause(self, tried: Address | _Here | None, pause_ms: int) -> bool:
        """Ends early, with True, when the quorum names another place."""
        clock = self._runtime.clock
        until_ms = clock.mono_ms() + pause_ms
        while not self._has_moved(tried):
            left_ms = until_ms - clock.mono_ms()
            if left_ms <= 0:
                return False
            await asyncio.sleep(min(left_ms, LOOK_MS) / 1000)
        return True

    def _say(self, name: str, reason: str) -> None:
        now_ms = self._runtime.clock.mono_ms()
        if now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            LOGGER.info("%s is waiting for the controller: %s", name, reason)

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)
        yield REPEATS.sample(self._repeats)


def _checked(reply: R, where: Address | _Here) -> R:
    if has_error(reply, ErrorCode.NOT_CONTROLLER):
        raise NotController(f"{where} is not the active controller")
    return reply


def has_error(message: Message, code: ErrorCode) -> bool:
    """Whether the code stands anywhere in a response: some have one for the whole of it, others
    one for each thing asked for."""
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
    """The error code of a message, and the fields inside which there are others."""
    return tuple(
        field
        for field in kind.FIELDS
        if field.name == "error_code"
        or (isinstance(field.element, type) and _fields_with_errors(field.element))
    )
