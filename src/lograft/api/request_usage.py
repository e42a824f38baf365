"""What one request uses of its client's quotas, and how it is throttled (KIP-219).

A request is handled first. Its response reports the throttle time, and the connection is muted for
that time, so that the client neither times out nor sends more. The exception is Fetch: a response
that would exceed the quota is replaced by an empty one, because its records have not been sent yet.

Time is counted while the event loop decodes, handles and encodes the request, and not while the
request waits. Requests between nodes are exempt.
"""

from collections.abc import Generator
from typing import Any, Final

from lograft.broker.client_quotas import ClientQuotas
from lograft.model.seams import Clock, FileSlice
from lograft.wire.apis import response_header_version
from lograft.wire.headers import frame_response
from lograft.wire.message import Message
from lograft.wire.messages.fetch import FetchResponse
from lograft.wire.messages.produce import ProduceRequest

#: 100 percent is the whole event loop.
PERCENT_PER_NS: Final = 100 / 1_000_000_000
#: Inter-node APIs, which require ClusterAction.
BETWEEN_NODES: Final = frozenset({
    27,  # WriteTxnMarkers
    52, 53, 54, 59,  # Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot
    56, 58, 62, 63, 67,  # AlterPartition, Envelope, BrokerRegistration, BrokerHeartbeat, …
    70, 73, 82,  # ControllerRegistration, AssignReplicasToDirs, UpdateRaftVoter
})  # fmt: skip


class RequestUsage:
    """The time that one request uses; measured while any request quota is configured."""

    __slots__ = (
        "_clock",
        "_elapsed_ns",
        "_quotas",
        "_recorded_ms",
        "_running_since_ns",
        "client_id",
        "size_bytes",
        "user",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        clock: Clock,
        *,
        principal: str,
        client_id: str | None,
        size_bytes: int,
        from_ns: int,
    ) -> None:
        """`from_ns`: when the event loop began to handle the request."""
        self._quotas = quotas
        self._clock = clock
        self.user = principal.partition(":")[2]
        # As in Kafka, a null client id is an empty one.
        self.client_id = client_id or ""
        self.size_bytes = size_bytes
        self._elapsed_ns = 0
        self._running_since_ns: int | None = from_ns
        #: The throttle time, if a handler has recorded the request already.
        self._recorded_ms: int | None = None

    def resume(self) -> None:
        self._running_since_ns = self._clock.mono_ns()

    def pause(self) -> None:
        if self._running_since_ns is not None:
            self._elapsed_ns += self._clock.mono_ns() - self._running_since_ns
            self._running_since_ns = None

    def record(self, request: Message) -> int:
        """Records the request, whose response is known; returns its throttle time."""
        if self._recorded_ms is not None:
            return self._recorded_ms
        now_ms = self._clock.mono_ms()
        produce_ms = request_ms = 0
        has_response = True
        if type(request) is ProduceRequest:
            produce = self._quotas.produce
            produce_ms = produce.record(self.user, self.client_id, self.size_bytes, now_ms)
            has_response = request.acks != 0
        if has_response:
            # As in Kafka, Produce with acks=0 counts only for its bytes.
            request_ms = self._record_time(now_ms)
        if produce_ms > request_ms:
            self._quotas.produce.count_throttled(produce_ms)
        elif request_ms:
            self._quotas.request.count_throttled(request_ms)
        return max(produce_ms, request_ms)

    def record_fetch(self, response: FetchResponse, version: int) -> int:
        """Records a Fetch with the response that would be sent. If it returns a throttle time, the
        client must get an empty response instead."""
        size_bytes = response_bytes(response, version)
        now_ms = self._clock.mono_ms()
        fetch = self._quotas.fetch
        fetch_ms = fetch.record(self.user, self.client_id, size_bytes, now_ms)
        request_ms = self._record_time(now_ms)
        throttle_ms = max(fetch_ms, request_ms)
        if throttle_ms:
            fetch.take_back(self.user, self.client_id, size_bytes, now_ms)
            (fetch if fetch_ms > request_ms else self._quotas.request).count_throttled(throttle_ms)
        self._recorded_ms = throttle_ms
        return throttle_ms

    def fetch_bytes_max(self) -> float | None:
        """Returns the largest response that the quota allows."""
        return self._quotas.fetch.bytes_max(self.user, self.client_id)

    def _record_time(self, now_ms: int) -> int:
        if not self._quotas.request.is_limited:
            return 0
        self.pause()
        percent = self._elapsed_ns * PERCENT_PER_NS
        return self._quotas.request.record(self.user, self.client_id, percent, now_ms)


class MeasuredWork:
    """Awaits a coroutine and counts the time of its steps."""

    __slots__ = ("_usage", "_work")

    def __init__(self, work: Any, usage: RequestUsage) -> None:
        self._work = work
        self._usage = usage

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            self._usage.resume()
            try:
                awaited = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            self._usage.pause()
            value = error = None
            try:
                value = yield awaited
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as raised:
                error = raised


def response_bytes(response: Message, version: int) -> int:
    """Returns the size of a response excluding the header, including the 4-byte length prefix."""
    header_version = response_header_version(response.KEY, version)
    parts = frame_response(response, version, correlation_id=0, header_version=header_version)
    size = sum(part.size if type(part) is FileSlice else len(part) for part in parts)
    return size - (5 if header_version else 4)
