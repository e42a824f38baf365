"""What the clients of a node have used of their quotas.

One `ClientUsage` for each quota that is measured as a rate, and a `MutationUsage` for the changes
that clients request from the controller. Both keep state for clients with a limit only, forget it
when it no longer counts, and never for more than `CLIENTS_MAX` clients: client ids are the client's
choice, so their number is not limited by anything else. When the limit is reached, the clients idle
for longest are evicted, and begin with an empty window.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from lograft.security.quota_limits import ClientKey, QuotaLimits
from lograft.security.quota_rates import QuotaWindow, SampledRate, TokenBucket

CLIENTS_MAX: Final = 10_000
#: Maximum number of (user, client id) pairs whose limits are cached.
FOUND_MAX: Final = 10_000
NO_LIMITS: Final = QuotaLimits({})


class Measured(Protocol):
    def is_idle(self, now_ms: int) -> bool: ...


M = TypeVar("M", bound=Measured)
K = TypeVar("K")


class RecentlyUsed(Generic[K, M]):
    """State by key, the least recently used first."""

    __slots__ = ("_states", "count_max", "evicted")

    def __init__(self, count_max: int = CLIENTS_MAX) -> None:
        self._states: dict[K, M] = {}
        self.count_max = count_max
        #: How many were forgotten although they still counted.
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._states)

    def use(self, key: K) -> M | None:
        state = self._states.pop(key, None)
        if state is not None:
            self._states[key] = state
        return state

    def add(self, key: K, state: M, now_ms: int) -> None:
        self.forget_idle(now_ms)
        if len(self._states) >= self.count_max:
            self._states.pop(next(iter(self._states)))
            self.evicted += 1
        self._states[key] = state

    def forget_idle(self, now_ms: int) -> None:
        states = self._states
        while states:
            oldest = next(iter(states))
            if not states[oldest].is_idle(now_ms):
                return
            del states[oldest]

    def items(self) -> Iterator[tuple[K, M]]:
        yield from self._states.items()

    def clear(self) -> None:
        self._states.clear()


class _Found:
    """Limits that were looked up since they changed."""

    __slots__ = ("_found", "limits")

    def __init__(self) -> None:
        self.limits = NO_LIMITS
        self._found: dict[tuple[str, str], tuple[ClientKey, float] | None] = {}

    def replace(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self._found.clear()

    def find(self, user: str, client_id: str) -> tuple[ClientKey, float] | None:
        names = (user, client_id)
        try:
            return self._found[names]
        except KeyError:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            found = self._found[names] = self.limits.find(user, client_id)
            return found


class LimitedUsage(Generic[M]):
    """The use of one quota by the clients that it limits."""

    __slots__ = ("_found", "_new_state", "_states", "throttled", "throttled_ms")

    def __init__(self, new_state: Callable[[], M]) -> None:
        self._new_state = new_state
        self._found = _Found()
        self._states: RecentlyUsed[ClientKey, M] = RecentlyUsed()
        #: Requests that were throttled, and for how long in total.
        self.throttled = 0
        self.throttled_ms = 0

    @property
    def is_limited(self) -> bool:
        """Whether any client has a limit."""
        return bool(self._found.limits)

    @property
    def clients(self) -> int:
        return len(self._states)

    @property
    def evicted_count(self) -> int:
        return self._states.evicted

    def set_limits(self, limits: QuotaLimits) -> None:
        """What was recorded stays: a changed limit applies to the current windows."""
        self._found.replace(limits)
        if not limits:
            self._states.clear()

    def limit(self, user: str, client_id: str) -> float | None:
        found = self._found.find(user, client_id)
        return None if found is None else found[1]

    def count_throttled(self, throttle_ms: int) -> None:
        self.throttled += 1
        self.throttled_ms += throttle_ms

    def _state_of(self, key: ClientKey, now_ms: int) -> M:
        state = self._states.use(key)
        if state is None:
            state = self._new_state()
            self._states.add(key, state, now_ms)
        return state


class ClientUsage(LimitedUsage[SampledRate]):
    """The use of one quota that limits a rate."""

    __slots__ = ("_window", "throttle_ms_max")

    def __init__(self, window: QuotaWindow, *, throttle_ms_max: int | None = None) -> None:
        super().__init__(lambda: SampledRate(window))
        self._window = window
        #: The longest time for which one request is throttled; None: as long as it takes.
        self.throttle_ms_max = throttle_ms_max

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Returns for how long the client is throttled; 0 if it is within its quota."""
        found = self._found.find(user, client_id)
        if found is None:
            return 0
        key, limit = found
        rate = self._state_of(key, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if self.throttle_ms_max is not None:
            throttle_ms = min(throttle_ms, self.throttle_ms_max)
        return throttle_ms

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Reverses the record of a response that is not sent."""
        found = self._found.find(user, client_id)
        rate = None if found is None else self._states.use(found[0])
        if rate is not None:
            rate.record(-value, now_ms)

    def bytes_max(self, user: str, client_id: str) -> float | None:
        """Returns what a client may use in all but one of the windows; a larger response could
        never be sent within the quota."""
        limit = self.limit(user, client_id)
        if limit is None:
            return None
        return limit * (self._window.samples - 1) * self._window.sample_ms / 1000


class MutationUsage(LimitedUsage[TokenBucket]):
    """The use of `controller_mutation_rate`: partitions that clients create and delete."""

    __slots__ = ()

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(lambda: TokenBucket(window))

    def record(
        self, user: str, client_id: str, permits: float, now_ms: int, *, is_strict: bool
    ) -> int:
        """Returns for how long the client is throttled. A strict record is not made if the quota
        has been exceeded before."""
        found = self._found.find(user, client_id)
        if found is None:
            return 0
        key, limit = found
        bucket = self._state_of(key, now_ms)
        if not is_strict:
            bucket.record(permits, limit, now_ms)
            return bucket.throttle_ms(limit, now_ms)
        throttle_ms = bucket.throttle_ms(limit, now_ms)
        if not throttle_ms:
            bucket.record(permits, limit, now_ms)
        return throttle_ms


class ConnectionUsage:
    """New connections by IP address."""

    __slots__ = ("_states", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._states: RecentlyUsed[str, SampledRate] = RecentlyUsed()

    @property
    def clients(self) -> int:
        return len(self._states)

    def clear(self) -> None:
        self._states.clear()

    def record(self, address: str, limit: float, now_ms: int) -> int:
        """Returns for how long a new connection is delayed before it is closed; 0 if it is
        accepted. Rejected connections do not count."""
        rate = self._states.use(address)
        if rate is None:
            rate = SampledRate(self._window)
            self._states.add(address, rate, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window.sample_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms
