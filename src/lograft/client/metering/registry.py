"""The metrics of one client: collects readings, ends windows, and calls the reporters."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from lograft import __version__
from lograft.client.metering.declarations import Level, Reading, Statistic, gauge
from lograft.client.metering.names import ClientMetrics, MetricName, MetricValue
from lograft.client.metering.windows import Windows
from lograft.model.seams import Clock

LOGGER: Final = logging.getLogger(__name__)

#: Called with all metrics at the end of each metrics.sample.window.ms, and when the client closes.
MetricReporter: TypeAlias = Callable[[ClientMetrics], object]

VERSION: Final = gauge("version", "app-info", "Version of Lograft, as text.")
START_TIME: Final = gauge("start-time-ms", "app-info", "When the client was opened.")
COUNT: Final = gauge("count", "kafka-metrics-count", "Metrics of the client.")


class MetricRegistry:
    def __init__(
        self,
        clock: Clock,
        *,
        kind: str,
        client_id: str,
        samples: int,
        window_ms: int,
        level: Level,
        reporters: Iterable[MetricReporter],
    ) -> None:
        """`kind`: producer, consumer or admin-client."""
        self._clock = clock
        self._kind = kind
        self._client_id = client_id
        self._level = level
        self._window_ms = window_ms
        self._reporters = tuple(reporters)
        self._sources: list[Callable[[], Iterator[Reading]]] = []
        self._windows = Windows(samples, window_ms, clock.mono_ms())
        self._start_ms = clock.wall_ms()
        self._timer: asyncio.TimerHandle | None = None

    def add_source(self, collect: Callable[[], Iterator[Reading]]) -> None:
        """Adds an object of the client; `collect` is called when metrics are read."""
        self._sources.append(collect)

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._window_ms / 1_000, self._end_window
        )

    def close(self) -> None:
        """Calls the reporters a last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._report()

    def readings(self) -> list[Reading]:
        found = [VERSION.read(__version__), START_TIME.read(self._start_ms)]
        for collect in self._sources:
            found += [each for each in collect() if each.metric.level.value <= self._level.value]
        found.append(COUNT.read(1 + sum(len(each.metric.names) for each in found)))
        return found

    def metrics(self) -> ClientMetrics:
        """Returns the current values of all metrics."""
        return ClientMetrics({name: value for name, _, value in self.measure()})

    def measure(self) -> Iterator[tuple[MetricName, Statistic, MetricValue]]:
        """Yields the current values of all metrics, and how they are computed."""
        now_ms = self._clock.mono_ms()
        for reading in self.readings():
            names = self._names_of(reading)
            for name, statistic in zip(names, reading.metric.names.values(), strict=True):
                yield name, statistic, self._windows.compute(statistic, reading, now_ms)

    def _names_of(self, reading: Reading) -> list[MetricName]:
        metric, tag_values, _ = reading
        tags = tuple(
            sorted([("client-id", self._client_id), *zip(metric.tags, tag_values, strict=True)])
        )
        group = metric.group.format(kind=self._kind)
        return [MetricName(name, group, tags, metric.help) for name in metric.names]

    def _end_window(self) -> None:
        self._report()
        self._windows.start_next(self.readings(), self._clock.mono_ms())
        self.start()

    def _report(self) -> None:
        if not self._reporters:
            return
        metrics = self.metrics()
        for reporter in self._reporters:
            try:
                reporter(metrics)
            except Exception:
                LOGGER.exception("metric reporter %r failed", _name_of(reporter))


def _name_of(reporter: Any) -> str:
    return getattr(reporter, "__qualname__", type(reporter).__qualname__)
