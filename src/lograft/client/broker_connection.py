"""A connection to one broker, after the API versions are known and the client is authenticated."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from lograft.client.errors import OutcomeUnknown, UnsupportedByBroker
from lograft.client.network_metrics import Traffic
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Buffer, Clock
from lograft.wire.apis import API_VERSIONS_KEY, response_header_version, spec_of
from lograft.wire.client_connection import ClientConnection
from lograft.wire.codec import read_all
from lograft.wire.errors import WireError
from lograft.wire.headers import SIZE_BYTES, read_response_header, request_parts
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")
#: A request, or a function that builds it for the version that the connection uses.
Request: TypeAlias = Message | Callable[[int], Message]
#: Called once.
OnOutcome: TypeAlias = Callable[[R | OutcomeUnknown], None]

_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
FRAME_BYTES_MAX: Final = (1 << 31) - 1


class VersionRange(NamedTuple):
    lowest: int
    highest: int


class BrokerConnection:
    """Never retries: the caller decides what to do about an unknown outcome.

    A response that times out closes the connection, because the responses behind it would be late
    too.
    """

    def __init__(self, connection: ClientConnection, clock: Clock, *, client_id: str) -> None:
        self._connection = connection
        self._clock = clock
        self.client_id = client_id
        self._correlation_id = 0
        self.versions: Mapping[int, VersionRange] = {}
        #: Finalized features of the cluster: the level of each by its name.
        self.features: Mapping[str, int] = {}
        #: Whether the broker is a Lograft node, which understands Lograft's additional fields.
        self.is_lograft = False
        #: No request may be sent before this time of the monotonic clock: the broker throttles us.
        self.throttled_until_ms = 0
        #: When the session was begun or renewed last, and when the client has to renew it, by the
        #: monotonic clock; None: never.
        self.authenticated_ms: int | None = None
        self.expires_at_ms: int | None = None
        self.last_used_ms = clock.mono_ms()
        #: Shared by all connections to the broker.
        self.traffic = Traffic()

    @property
    def address(self) -> Address:
        return self._connection.address

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    @property
    def in_flight(self) -> int:
        return self._connection.in_flight

    @property
    def operations(self) -> int:
        """Returns the number of reads and writes."""
        return self._connection.operations

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    def version_of(self, key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """Returns the newest version of an API that both sides support. Raises
        UnsupportedByBroker."""
        spec = spec_of(key)
        supported = self.versions.get(key)
        if supported is not None:
            highest = min(supported.highest, spec.max_version)
            if at_most is not None:
                highest = min(highest, at_most)
            if highest >= max(supported.lowest, spec.min_version, at_least):
                return highest
        raise UnsupportedByBroker(
            f"{self.address} does not support {spec.name}"
            + (f" version {at_least} or later" if at_least else " in any version of this client")
            + ": it may run an older release"
        )

    def check_lograft(self, key: int) -> None:
        """Raises UnsupportedByBroker if the broker would ignore Lograft's fields in a request."""
        if not self.is_lograft:
            raise UnsupportedByBroker(
                f"{self.address} is not a Lograft broker: it would ignore the fields that Lograft"
                f" adds to {spec_of(key).name} requests"
            )

    def send(
        self,
        request: Request,
        response_type: type[R],
        on_outcome: "OnOutcome[R]",
        *,
        timeout_ms: int,
        version: int | None = None,
    ) -> None:
        """Sends a request immediately; requests are sent in the order of the calls. Calls
        `on_outcome` from within the read that receives the response, one iteration of the event
        loop before a future would complete."""
        if version is None:
            version = self.version_of(response_type.KEY)
        message = request if isinstance(request, Message) else request(version)
        correlation_id = self._next_correlation_id()
        parts = request_parts(message, version, correlation_id, self.client_id)
        pending = _PendingResponse(self, response_type, version, timeout_ms, on_outcome)
        self._count_request(parts)
        self._connection.send(correlation_id, parts, pending)

    def send_packed(
        self,
        pack: Callable[[int, T], list[Buffer]],
        content: T,
        response_type: type[R],
        on_outcome: "OnOutcome[R]",
        *,
        timeout_ms: int,
        version: int,
    ) -> None:
        """Like `send`, without the codec: `pack` builds the frame from the correlation id and
        `content`."""
        correlation_id = self._next_correlation_id()
        pending = _PendingResponse(self, response_type, version, timeout_ms, on_outcome)
        parts = pack(correlation_id, content)
        self._count_request(parts)
        self._connection.send(correlation_id, parts, pending)

    def send_for_future(
        self,
        request: Request,
        response_type: type[R],
        *,
        timeout_ms: int,
        version: int | None = None,
    ) -> "asyncio.Future[R]":
        """Sends a request immediately, and returns a future for its response, which may fail with
        OutcomeUnknown."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def settle(outcome: R | OutcomeUnknown) -> None:
            if future.done():
                return  # the waiting task was cancelled
            if isinstance(outcome, OutcomeUnknown):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.send(request, response_type, settle, timeout_ms=timeout_ms, version=version)
        return future

    async def request(
        self,
        request: Request,
        response_type: type[R],
        *,
        timeout_ms: int,
        version: int | None = None,
    ) -> R:
        """Sends a request and returns its response. Raises OutcomeUnknown."""
        return await self.send_for_future(
            request, response_type, timeout_ms=timeout_ms, version=version
        )

    def send_oneway(self, request: Message, version: int) -> None:
        """Sends a request that has no response: Produce with acks=0."""
        correlation_id = self._next_correlation_id()
        parts = request_parts(request, version, correlation_id, self.client_id)
        self._count_request(parts)
        self._connection.send_only(parts)

    def close(self, reason: str = "closed") -> None:
        self._connection.abort(reason)

    def _next_correlation_id(self) -> int:
        self.last_used_ms = self._clock.mono_ms()
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        return correlation_id

    def _count_request(self, parts: list[Buffer]) -> None:
        self.traffic.request_sizes.record(sum(map(len, parts)))

    def _on_response(self, throttle_ms: int, *, sent_ms: int, size_bytes: int) -> None:
        now = self.last_used_ms = self._clock.mono_ms()
        traffic = self.traffic
        traffic.responses += 1
        traffic.received_bytes += size_bytes
        traffic.latencies.record(now - sent_ms)
        if throttle_ms > 0:
            self.throttled_until_ms = now + throttle_ms


class _PendingResponse(Generic[R]):
    """Waits for one response."""

    __slots__ = (
        "_connection",
        "_loop",
        "_on_outcome",
        "_response_type",
        "_sent_ms",
        "_timeout_ms",
        "_timer",
        "_version",
    )

    def __init__(
        self,
        connection: BrokerConnection,
        response_type: type[R],
        version: int,
        timeout_ms: int,
        on_outcome: OnOutcome[R],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._response_type = response_type
        self._version = version
        self._on_outcome = on_outcome
        self._sent_ms = connection.last_used_ms
        self._timeout_ms = timeout_ms
        self._timer = self._loop.call_later(timeout_ms / 1000, self._on_timeout)

    def on_frame(self, frame: memoryview) -> None:
        self._timer.cancel()
        # A copy: the buffer belongs to the connection, and the response outlives it.
        data: Buffer = bytes(frame)
        try:
            response = read_response(self._response_type, self._version, data)
        except WireError as error:
            self._connection.close("malformed response")
            self._on_outcome(
                OutcomeUnknown(f"malformed response from {self._connection.address}: {error}")
            )
            return
        self._connection._on_response(
            _throttle_ms(response), sent_ms=self._sent_ms, size_bytes=SIZE_BYTES + len(data)
        )
        self._on_outcome(response)

    def on_lost(self, reason: str) -> None:
        self._timer.cancel()
        name = spec_of(self._response_type.KEY).name
        lost = OutcomeUnknown(
            f"{self._connection.address} did not respond to the {name} request: {reason}"
        )
        # Scheduled: the caller itself may have closed the connection, in the middle of its work.
        self._loop.call_soon(self._on_outcome, lost)

    def _on_timeout(self) -> None:
        self._connection.close(f"no response within {self._timeout_ms} ms")


def read_response(response_type: type[R], version: int, data: Buffer) -> R:
    key = response_type.KEY
    _, position = read_response_header(data, response_header_version(key, version))
    if key == API_VERSIONS_KEY and data[position : position + 2] == _UNSUPPORTED_VERSION:
        version = 0  # KIP-511: a broker that does not support the request's version uses version 0
    return read_all(response_type, version, data, position)


def _throttle_ms(response: Any) -> int:
    throttle: int = getattr(response, "throttle_time_ms", 0)
    return throttle
