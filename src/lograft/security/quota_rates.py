"""Measures what a client uses of a quota, and how long it has to wait if that is too much.

The rules are Kafka's. Bytes, request time and new connections are a rate over `samples` windows
(`SampledRate`); changes by the controller are taken from a token bucket (`TokenBucket`), so that a
burst of small requests is allowed and a large one is paid for afterwards. Both get the time as an
argument, and record before they compare: the request that exceeds a quota has already been handled.
"""

from typing import Final, NamedTuple

#: The largest throttle time of a response.
THROTTLE_MS_MAX: Final = (1 << 31) - 1


class QuotaWindow(NamedTuple):
    """Settings `quota.window.num` and `quota.window.size.seconds`, or those of the controller."""

    samples: int
    sample_ms: int


class SampledRate:
    """A rate per second over the last windows, like Kafka's Rate over a SampledStat.

    A window begins with the first use after the end of the one before. A window counts until all
    of it is older than `samples` windows. The rate is never measured over less than `samples - 1`
    windows, so that the first requests of a client do not appear as a high rate.
    """

    __slots__ = ("_current", "_last_ms", "_starts_ms", "_values", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._current = 0
        #: One entry for each window, up to one more than `samples`; the oldest one is reused.
        self._starts_ms: list[int] = []
        self._last_ms: list[int] = []
        self._values: list[float] = []

    def record(self, value: float, now_ms: int) -> None:
        """`value` may be negative, to take back what was recorded before."""
        starts_ms = self._starts_ms
        if not starts_ms:
            self._add_sample(now_ms)
        elif now_ms - starts_ms[self._current] >= self._window.sample_ms:
            self._current = (self._current + 1) % (self._window.samples + 1)
            if self._current >= len(starts_ms):
                self._add_sample(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._values[self._current] += value
        self._last_ms[self._current] = now_ms

    def measure(self, now_ms: int) -> float:
        """Returns the rate per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(self._values) / (elapsed_ms / 1000)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time without further use after which the rate falls to the limit; 0 if it is
        not above the limit."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        return _whole_ms((rate - limit) * self.elapsed_ms(now_ms), limit)

    def elapsed_ms(self, now_ms: int) -> int:
        """Returns the time over which the rate is measured."""
        self._forget_old(now_ms)
        sample_ms, least = self._window.sample_ms, self._window.samples - 1
        elapsed_ms = now_ms - min(self._starts_ms, default=now_ms)
        whole = elapsed_ms // sample_ms
        if whole < least:
            elapsed_ms += (least - whole) * sample_ms
        return max(elapsed_ms, 1)

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether nothing that was recorded counts any more."""
        age_ms = self._window.samples * self._window.sample_ms
        return all(now_ms - last_ms >= age_ms for last_ms in self._last_ms)

    def _add_sample(self, now_ms: int) -> None:
        self._starts_ms.append(now_ms)
        self._last_ms.append(now_ms)
        self._values.append(0.0)

    def _reset(self, index: int, now_ms: int) -> None:
        self._starts_ms[index] = self._last_ms[index] = now_ms
        self._values[index] = 0.0

    def _forget_old(self, now_ms: int) -> None:
        age_ms = self._window.samples * self._window.sample_ms
        for index, last_ms in enumerate(self._last_ms):
            if now_ms - last_ms >= age_ms:
                self._reset(index, now_ms)


class TokenBucket:
    """A number of tokens that grows by `limit` per second, up to the tokens of all windows. It may
    become negative: then the client waits until it is not."""

    __slots__ = ("_limit", "_tokens", "_updated_ms", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        #: None: full.
        self._tokens: float | None = None
        #: The limit and the time of the last measurement.
        self._limit = 0.0
        self._updated_ms = 0

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self._tokens = min(self._burst(limit), self.measure(limit, now_ms) - value)

    def measure(self, limit: float, now_ms: int) -> float:
        """Returns the number of tokens."""
        burst = self._burst(limit)
        tokens = burst
        if self._tokens is not None:
            tokens = min(burst, self._tokens + limit * (now_ms - self._updated_ms) / 1000)
        self._tokens, self._limit, self._updated_ms = tokens, limit, now_ms
        return tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time after which the number of tokens is no longer negative."""
        tokens = self.measure(limit, now_ms)
        return _whole_ms(-tokens * 1000, limit) if tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether the bucket is full, like a new one."""
        if self._tokens is None:
            return True
        return self._tokens + self._limit * (now_ms - self._updated_ms) / 1000 >= self._burst(
            self._limit
        )

    def _burst(self, limit: float) -> float:
        return self._window.samples * (self._window.sample_ms / 1000) * limit


def _whole_ms(excess: float, limit: float) -> int:
    """Returns the quotient, rounded like Java's Math.round. Kafka stores no limit of 0."""
    if excess >= limit * THROTTLE_MS_MAX:
        return THROTTLE_MS_MAX
    return int(excess / limit + 0.5)
