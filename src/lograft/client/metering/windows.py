"""Rates, averages and extremes over the last `metrics.num.samples` windows of
`metrics.sample.window.ms`.

Objects record totals, and the extremes of the current window. When a window ends, its extremes and
the totals at the start of the next one are kept here. Rates and averages then follow from the
difference between the totals now and at the start of the oldest window.
"""

from collections import deque
from collections.abc import Sequence
from math import inf, nan
from typing import NamedTuple, TypeAlias

from lograft.client.metering.declarations import ClientMetric, Distribution, Reading, Statistic

_Key: TypeAlias = tuple[ClientMetric, tuple[str, ...]]


class _Totals(NamedTuple):
    total: float
    #: Number of values; 0 if they are not in a distribution.
    values: int


class _Window:
    """A window: the totals at its start and, once it has ended, its extremes."""

    __slots__ = ("maxima", "minima", "start_ms", "totals")

    def __init__(self, start_ms: int, totals: dict[_Key, _Totals]) -> None:
        self.start_ms = start_ms
        self.totals = totals
        self.maxima: dict[_Key, float] = {}
        self.minima: dict[_Key, float] = {}


_NONE = _Totals(0.0, 0)


class Windows:
    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        #: The oldest first; the last is the current one.
        self._windows: deque[_Window] = deque([_Window(now_ms, {})], maxlen=samples)

    def start_next(self, readings: Sequence[Reading], now_ms: int) -> None:
        """Ends the current window. Resets the extremes of all distributions in `readings`."""
        ended = self._windows[-1]
        totals: dict[_Key, _Totals] = {}
        for metric, tags, value in readings:
            if isinstance(value, Distribution):
                key = metric, tags
                ended.maxima[key], ended.minima[key] = value.max, value.min
                totals[key] = _Totals(value.total, value.count)
            elif not isinstance(value, str):
                totals[metric, tags] = _Totals(value, 0)
        for _, _, value in readings:
            if isinstance(value, Distribution):
                value.reset_extremes()
        self._windows.append(_Window(now_ms, totals))

    def compute(self, statistic: Statistic, reading: Reading, now_ms: int) -> float | str:
        """Returns the statistic of a reading."""
        metric, tags, value = reading
        if isinstance(value, Distribution):
            return self._of_distribution(statistic, (metric, tags), value)
        if isinstance(value, str) or statistic in (Statistic.VALUE, Statistic.TOTAL):
            return value
        per_second = self._increase((metric, tags), value) * 1_000 / self._elapsed_ms(now_ms)
        match statistic:
            case Statistic.RATE:
                return per_second
            case Statistic.RATE_PER_HOUR:
                return per_second * 3_600
            case Statistic.TIME_RATIO:
                return per_second / 1e9
            case Statistic.AVG | Statistic.MAX | Statistic.MIN:
                raise AssertionError(f"{metric} is not recorded in a distribution")

    def _of_distribution(self, statistic: Statistic, key: _Key, value: Distribution) -> float:
        match statistic:
            case Statistic.AVG:
                start = self._windows[0].totals.get(key, _NONE)
                count = value.count - start.values
                return (value.total - start.total) / count if count > 0 else nan
            case Statistic.MAX:
                ended = (window.maxima.get(key, -inf) for window in self._windows)
                highest = max(value.max, *ended)
                return nan if highest == -inf else highest
            case Statistic.MIN:
                ended = (window.minima.get(key, inf) for window in self._windows)
                lowest = min(value.min, *ended)
                return nan if lowest == inf else lowest
            case Statistic.TOTAL:
                return value.total
            case _:
                raise AssertionError(f"a distribution has no {statistic.value}")

    def _increase(self, key: _Key, value: float) -> float:
        return value - self._windows[0].totals.get(key, _NONE).total

    def _elapsed_ms(self, now_ms: int) -> int:
        """As in Kafka, at least the time of all windows but one, so that the rates of a new client
        do not start too high."""
        elapsed_ms = now_ms - self._windows[0].start_ms
        complete = min(elapsed_ms // self._window_ms, self._samples - 1)
        missing = self._samples - 1 - complete
        return max(elapsed_ms + missing * self._window_ms, 1)
