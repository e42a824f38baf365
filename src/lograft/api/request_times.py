"""How long requests take, by API and stage.

    received ── queue ── handled from ── local ── handled ── remote ── completed ── send ── sent

- queue: the request has been received, and waits until those before it are handled.
- local: the handler runs, up to its response or its first wait.
- remote: the request waits, for a commit, an fsync, records, the controller or another node.
- send: the response is encoded, waits for those before it, and is passed to the operating system.

Measuring a request takes some ten calls, which would be noticeable on the fast path and for small
requests. So after the first requests of an API only some are measured, and each of these counts for
all that were skipped since the last one: buckets, counts and sums are estimates with the right
expectation. The intervals are prime numbers, since requests often repeat in a cycle. The log of
slow requests has to see all of them: while it is enabled, each is measured.
"""

from collections.abc import Callable, Iterator
from typing import Final

from lograft.api.slow_requests import RequestOrigin, SlowRequestLog
from lograft.model.exchange import DelayedReply, EncodedResponse, Reply
from lograft.model.metrics import API, LATENCY_BUCKETS, Histogram, Sample, enum_label

#: The first requests are all measured: this many of each API, and of each fast path.
ALL_MEASURED: Final = 100
#: Afterwards, one in this many is measured: on the general path, and on the fast path.
GENERAL_INTERVAL: Final = 7
FAST_INTERVAL: Final = 61
#: The API label of Fetch requests by followers, which wait for records most of the time.
FOLLOWER_FETCH: Final = "FetchFollower"

STAGES: Final = ("queue", "local", "remote", "send")
REQUEST_SECONDS: Final = Histogram(
    "lograft_request_seconds",
    "Time from the receipt of a request until its response was passed to the operating system;"
    " estimated from some of the requests. FetchFollower: Fetch requests of followers.",
    API,
    bounds=LATENCY_BUCKETS,
)
STAGE_SECONDS: Final = Histogram(
    "lograft_request_stage_seconds",
    "Time of requests by stage: queue (behind other requests), local (in the handler), remote"
    " (waiting for a commit, for records or for another node), send.",
    API,
    enum_label("stage", STAGES),
    bounds=LATENCY_BUCKETS,
)
_NS: Final = 1e-9


class RequestTimes:
    """The times of one API's requests."""

    __slots__ = ("_api", "_local", "_queue", "_remote", "_send", "_total")

    def __init__(self, api: str) -> None:
        self._api = api
        self._total = REQUEST_SECONDS.make_recorder()
        self._queue = STAGE_SECONDS.make_recorder()
        self._local = STAGE_SECONDS.make_recorder()
        self._remote = STAGE_SECONDS.make_recorder()
        self._send = STAGE_SECONDS.make_recorder()

    def add(self, timing: "RequestTiming", sent_ns: int) -> None:
        count, received_ns, from_ns = timing.count, timing.received_ns, timing.from_ns
        handled_ns, completed_ns = timing.handled_ns, timing.completed_ns
        self._total.observe((sent_ns - received_ns) * _NS, count)
        self._queue.observe((from_ns - received_ns) * _NS, count)
        self._local.observe((handled_ns - from_ns) * _NS, count)
        self._remote.observe((completed_ns - handled_ns) * _NS, count)
        self._send.observe((sent_ns - completed_ns) * _NS, count)

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUEST_SECONDS.sample(self._total, self._api)
        recorders = (self._queue, self._local, self._remote, self._send)
        for stage, recorder in zip(STAGES, recorders, strict=True):
            yield STAGE_SECONDS.sample(recorder, self._api, stage)


class RequestTiming:
    """The times of one request. A `model.exchange.Timing`."""

    __slots__ = (
        "_mono_ns",
        "completed_ns",
        "count",
        "from_ns",
        "handled_ns",
        "origin",
        "received_ns",
        "slow_requests",
        "times",
    )

    def __init__(
        self,
        times: RequestTimes,
        mono_ns: Callable[[], int],
        received_ns: int,
        *,
        from_ns: int,
        count: int,
    ) -> None:
        """`from_ns`: when its handling began. It represents `count` requests."""
        self.times = times
        self._mono_ns = mono_ns
        self.count = count
        self.from_ns = from_ns
        #: A request that did not arrive on a connection was received then.
        self.received_ns = received_ns or self.from_ns
        self.handled_ns = 0
        self.completed_ns = 0
        #: Description of the request, if the log of slow requests is enabled.
        self.origin: RequestOrigin | None = None
        self.slow_requests: SlowRequestLog | None = None

    def on_waiting(self) -> None:
        """The handler has returned, and the request waits."""
        self.handled_ns = self._mono_ns()

    def on_completed(self) -> None:
        """The response is known."""
        self.completed_ns = self._mono_ns()
        if not self.handled_ns:
            self.handled_ns = self.completed_ns

    def on_sent(self) -> None:
        sent_ns = self._mono_ns()
        self.times.add(self, sent_ns)
        if self.origin is not None and self.slow_requests is not None:
            self.slow_requests.on_sent(self.origin, self, sent_ns)


class TimedReply(DelayedReply):
    """A delayed reply of the fast path whose request is measured."""

    __slots__ = ("_reply", "_timing", "allows_pipelining")

    def __init__(self, reply: DelayedReply, timing: RequestTiming) -> None:
        self._reply = reply
        self._timing = timing
        self.allows_pipelining = reply.allows_pipelining

    def begin(self, recheck: Callable[[], None]) -> None:
        self._reply.begin(recheck)

    def try_complete(self) -> Reply:
        reply = self._reply.try_complete()
        return self if reply is self._reply else measure_reply(reply, self._timing)

    def cancel(self) -> None:
        self._reply.cancel()


def measure_reply(reply: Reply, timing: RequestTiming) -> Reply:
    """Returns the reply of a measured request. If the general path takes over, it measures."""
    if type(reply) is bytes:
        timing.on_completed()
        return EncodedResponse((reply,), timing=timing)
    if type(reply) is EncodedResponse and reply.timing is None:
        timing.on_completed()
        return reply._replace(timing=timing)
    if isinstance(reply, DelayedReply):
        timing.on_waiting()
        return TimedReply(reply, timing)
    return reply


def interval_after(count: int, interval: int) -> int:
    """Returns after how many further requests the next one is measured, if `count` were handled."""
    return 1 if count < ALL_MEASURED else interval
