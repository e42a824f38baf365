"""The log of slow requests: those that take at least lograft.slow.request.ms.

While it is enabled, every request is measured (`api/request_times.py`); otherwise only a sample is.
Waits that the client asked for, such as the long poll of a Fetch, do not count. A node under
overload has many slow requests, so the number of lines is limited, and the next line says how many
were omitted.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lograft.model.metrics import API, Counter, Sample
from lograft.model.printable_text import printable
from lograft.model.seams import Address
from lograft.wire.apis import API_VERSIONS, FETCH_KEY, JOIN_GROUP_KEY, SYNC_GROUP_KEY

if TYPE_CHECKING:
    from lograft.api.request_times import RequestTiming

LINES_PER_SECOND_MAX: Final = 10
CLIENT_ID_LENGTH_MAX: Final = 100
#: They wait for records, or for the other members of a group.
WAITING_APIS: Final = frozenset((FETCH_KEY, JOIN_GROUP_KEY, SYNC_GROUP_KEY))
_NS_PER_MS: Final = 1_000_000

SLOW_REQUESTS: Final = Counter(
    "lograft_slow_requests_total",
    "Requests that took at least lograft.slow.request.ms, if it is set.",
    API,
)

LOGGER: Final = logging.getLogger(__name__)


class RequestOrigin(NamedTuple):
    """What a line says about a request."""

    api_key: int
    version: int
    client_id: str | None
    peer: Address
    principal: str


class SlowRequestLog:
    """The log of one listener's requests."""

    def __init__(self, threshold_ms: Callable[[], int], listener: str) -> None:
        """`threshold_ms` returns the setting; negative: disabled."""
        self._threshold_ms = threshold_ms
        self._listener = listener
        self._counts: dict[str, int] = {}
        self._second = 0
        self._lines = 0
        self._omitted = 0

    @property
    def is_enabled(self) -> bool:
        return self._threshold_ms() >= 0

    def on_sent(self, origin: RequestOrigin, timing: "RequestTiming", sent_ns: int) -> None:
        threshold_ms = self._threshold_ms()
        took_ns = sent_ns - timing.received_ns
        if origin.api_key in WAITING_APIS:
            took_ns -= timing.completed_ns - timing.handled_ns
        if threshold_ms < 0 or took_ns < threshold_ms * _NS_PER_MS:
            return
        api = API_VERSIONS[origin.api_key].name
        self._counts[api] = self._counts.get(api, 0) + 1
        if self._takes_line(sent_ns):
            LOGGER.warning("%s", self._describe(api, origin, timing, sent_ns))

    def collect_samples(self) -> Iterator[Sample]:
        for api, count in list(self._counts.items()):
            yield SLOW_REQUESTS.sample(count, api)

    def _takes_line(self, now_ns: int) -> bool:
        second = now_ns // (1_000 * _NS_PER_MS)
        if second != self._second:
            self._second = second
            self._lines = 0
        if self._lines == LINES_PER_SECOND_MAX:
            self._omitted += 1
            return False
        self._lines += 1
        return True

    def _describe(
        self, api: str, origin: RequestOrigin, timing: "RequestTiming", sent_ns: int
    ) -> str:
        omitted, self._omitted = self._omitted, 0
        stages = (
            ("queue", timing.received_ns, timing.from_ns),
            ("local", timing.from_ns, timing.handled_ns),
            ("remote", timing.handled_ns, timing.completed_ns),
            ("send", timing.completed_ns, sent_ns),
        )
        times = ", ".join(f"{name} {_ms(end - start)}" for name, start, end in stages)
        client_id = printable((origin.client_id or "")[:CLIENT_ID_LENGTH_MAX])
        return (
            f"slow request: {api} version {origin.version} of client {client_id!r}"
            f" ({origin.principal} at {origin.peer}, listener {self._listener})"
            f" took {_ms(sent_ns - timing.received_ns)}: {times}"
            + (f"; {omitted} slow requests before it were not logged" if omitted else "")
        )


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / _NS_PER_MS:.0f} ms"
