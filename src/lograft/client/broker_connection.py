"""One connection to one broker: what it speaks is known, and it knows who we are."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from lograft.client.errors import OutcomeUnknown, UnsupportedByBroker
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Buffer, Clock
from lograft.wire.apis import API_VERSIONS_KEY, response_header_version, spec_of
from lograft.wire.client_connection import ClientConnection
from lograft.wire.codec import read_all
from lograft.wire.errors import WireError
from lograft.wire.headers import read_response_header, request_parts
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")
#: A request, or how to make it for the version that the broker speaks.
Request: TypeAlias = Message | Callable[[int], Message]
#: Called once.
OnOutcome: TypeAlias = Callable[[R | OutcomeUnknown], None]

_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
FRAME_BYTES_MAX: Final = (1 << 31) - 1


class VersionRange(NamedTuple):
    lowest: int
    highest: int


class BrokerConnection:
    """Never retries: what to do about an unknown outcome is the caller's decision.

    An answer that is late ends the connection: those behind it would be late too.
    """

    def __init__(self, caller: ClientConnection, clock: Clock, *, client_id: str) -> None:
        self._caller = caller
        self._clock = clock
        self.client_id = client_id
        self._number = 0
        self.versions: Mapping[int, VersionRange] = {}
        #: Finalised features of the cluster, by name: the levels that all of its nodes follow.
        self.features: Mapping[str, int] = {}
        #: Whether the node is Lograft's: it understands the fields that only Lograft has.
        self.is_lograft = False
        #: Until when the broker has asked us to be silent, by the monotonic clock.
        self.throttled_until_ms = 0
        #: When the broker ends what we may do with this login; None: never.
        self.expires_at_ms: int | None = None
        self.last_used_ms = clock.mono_ms()

    @property
    def address(self) -> Address:
        return self._caller.address

    @property
    def is_closed(self) -> bool:
        return self._caller.is_closed

    @property
    def in_flight(self) -> int:
        return self._caller.in_flight

    @property
    def unsent_bytes(self) -> int:
        return self._caller.unsent_bytes

    def version_of(self, key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """The newest version of an API that both sides speak."""
        spec = spec_of(key)
        offered = self.versions.get(key)
        if offered is not None:
            highest = min(offered.highest, spec.max_version)
            if at_most is not None:
                highest = min(highest, at_most)
            if highest >= max(offered.lowest, spec.min_version, at_least):
                return highest
        raise UnsupportedByBroker(
            f"{self.address} does not speak {spec.name}"
            + (f" in version {at_least} or later" if at_least else " in a version known here")
            + ": it may be an older release"
        )

    def check_lograft(self, key: int) -> None:
        """Before a request whose meaning lies in a field of Lograft's own."""
        if not self.is_lograft:
            raise UnsupportedByBroker(
                f"{self.address} is not a Lograft broker: it would ignore Lograft's own fields in"
                f" this {spec_of(key).name} request"
            )

    def call(
        self,
        request: Request,
        answer: type[R],
        on_outcome: "OnOutcome[R]",
        *,
        timeout_ms: int,
        version: int | None = None,
    ) -> None:
        """Sends now, in the order of the calls. `on_outcome` gets the answer inside the read that
        brings it: one turn of the loop before a future would tell it."""
        if version is None:
            version = self.version_of(answer.KEY)
        message = request if isinstance(request, Message) else request(version)
        number = self._next_number()
        parts = request_parts(message, version, number, self.client_id)
        self._caller.ask(number, parts, _Waiting(self, answer, version, timeout_ms, on_outcome))

    def call_packed(
        self,
        parts: Callable[[int, T], list[Buffer]],
        what: T,
        answer: type[R],
        on_outcome: "OnOutcome[R]",
        *,
        timeout_ms: int,
        version: int,
    ) -> None:
        """As `call`, where the codec is not needed: `parts` makes the request of its number and of
        `what` is new in it."""
        number = self._next_number()
        waiting = _Waiting(self, answer, version, timeout_ms, on_outcome)
        self._caller.ask(number, parts(number, what), waiting)

    def start(
        self, request: Request, answer: type[R], *, timeout_ms: int, version: int | None = None
    ) -> "asyncio.Future[R]":
        """Sends now, in the order of the calls. The future fails with OutcomeUnknown."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def settle(outcome: R | OutcomeUnknown) -> None:
            if future.done():
                return  # whoever waited was cancelled
            if isinstance(outcome, OutcomeUnknown):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.call(request, answer, settle, timeout_ms=timeout_ms, version=version)
        return future

    async def ask(
        self, request: Request, answer: type[R], *, timeout_ms: int, version: int | None = None
    ) -> R:
        return await self.start(request, answer, timeout_ms=timeout_ms, version=version)

    def post(self, request: Message, version: int) -> None:
        """A request that gets no answer: a produce with acks=0."""
        number = self._next_number()
        self._caller.post(request_parts(request, version, number, self.client_id))

    def close(self, reason: str = "closed") -> None:
        self._caller.abort(reason)

    def _next_number(self) -> int:
        self.last_used_ms = self._clock.mono_ms()
        self._number = number = (self._number + 1) & 0x7FFF_FFFF
        return number

    def _heard(self, throttle_ms: int) -> None:
        now = self.last_used_ms = self._clock.mono_ms()
        if throttle_ms > 0:
            self.throttled_until_ms = now + throttle_ms


class _Waiting(Generic[R]):
    """For one answer."""

    __slots__ = ("_answer", "_link", "_loop", "_on_outcome", "_timeout_ms", "_timer", "_version")

    def __init__(
        self,
        link: BrokerConnection,
        answer: type[R],
        version: int,
        timeout_ms: int,
        on_outcome: OnOutcome[R],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._answer = answer
        self._version = version
        self._on_outcome = on_outcome
        self._timeout_ms = timeout_ms
        self._timer = self._loop.call_later(timeout_ms / 1000, self._on_time)

    def on_frame(self, frame: memoryview) -> None:
        self._timer.cancel()
        # The frame's bytes belong to the connection; the answer outlives them.
        data: Buffer = bytes(frame)
        try:
            answer = read_answer(self._answer, self._version, data)
        except WireError as error:
            self._link.close("unreadable answer")
            self._on_outcome(
                OutcomeUnknown(f"{self._link.address} gave an answer that cannot be read: {error}")
            )
            return
        self._link._heard(_throttle_ms(answer))
        self._on_outcome(answer)

    def on_lost(self, reason: str) -> None:
        self._timer.cancel()
        name = spec_of(self._answer.KEY).name
        lost = OutcomeUnknown(f"{self._link.address} did not answer {name}: {reason}")
        # Later: it may be whoever asked that has closed the connection, in the middle of something.
        self._loop.call_soon(self._on_outcome, lost)

    def _on_time(self) -> None:
        self._link.close(f"no answer within {self._timeout_ms} ms")


def read_answer(kind: type[R], version: int, data: Buffer) -> R:
    _, position = read_response_header(data, response_header_version(kind.KEY, version))
    if kind.KEY == API_VERSIONS_KEY and data[position : position + 2] == _UNSUPPORTED_VERSION:
        version = 0  # KIP-511: whoever does not know the version of the question answers in 0
    return read_all(kind, version, data, position)


def _throttle_ms(answer: Any) -> int:
    throttle: int = getattr(answer, "throttle_time_ms", 0)
    return throttle
