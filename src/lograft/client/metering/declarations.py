"""Declarations of client metrics, and what the objects that are measured record.

RECORDS_SENT: Final = meter("record-send", CLIENT, "Records sent, including retries.")
BATCH_SIZE: Final = distribution("batch-size", CLIENT, "Bytes of the batches sent.")

class Sender:
    def collect_readings(self) -> Iterator[Reading]:
        yield RECORDS_SENT.read(self._records_sent)     # record-send-rate, record-send-total
        yield BATCH_SIZE.read(self._batch_sizes)        # batch-size-avg, batch-size-max
"""

from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import Final, NamedTuple

#: Groups, in which {kind} is the kind of client: producer, consumer or admin-client.
CLIENT: Final = "{kind}-metrics"
NODE: Final = "{kind}-node-metrics"


class Statistic(Enum):
    """How a metric is computed from what is recorded."""

    #: The current value.
    VALUE = "value"
    #: The sum since the client was opened.
    TOTAL = "total"
    #: The increase per second, over the last windows.
    RATE = "rate"
    RATE_PER_HOUR = "rate-per-hour"
    #: The increase in nanoseconds as a fraction of the time, over the last windows.
    TIME_RATIO = "time-ratio"
    #: This and the next: of the values recorded in the last windows.
    AVG = "avg"
    MAX = "max"
    MIN = "min"


class Level(Enum):
    """The lowest metrics.recording.level at which a metric exists."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


class Distribution:
    """Number, sum, maximum and minimum of recorded values. The extremes are those of the current
    window: reading the metrics of a window resets them."""

    __slots__ = ("count", "max", "min", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = -inf
        self.min = inf

    def record(self, value: float) -> None:
        self.count += 1
        self.total += value
        if value > self.max:
            self.max = value
        if value < self.min:
            self.min = value

    def add(self, other: "Distribution") -> None:
        """Adds the values of another distribution, to combine several."""
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)
        self.min = min(self.min, other.min)

    def reset_extremes(self) -> None:
        self.max, self.min = -inf, inf


class Reading(NamedTuple):
    """The current value of a metric for one combination of tags."""

    metric: "ClientMetric"
    #: The values of the metric's tags, in their order.
    tags: tuple[str, ...]
    value: float | str | Distribution


class ClientMetric:
    """One thing that is measured, and the metrics that are computed from it. Equal only to
    itself."""

    __slots__ = ("group", "help", "level", "names", "tags")

    def __init__(
        self,
        names: Mapping[str, Statistic],
        group: str,
        help: str,
        *,
        tags: tuple[str, ...] = (),
        level: Level = Level.INFO,
    ) -> None:
        assert help.endswith("."), names
        self.names = names
        self.group = group
        #: One sentence.
        self.help = help
        self.tags = tags
        self.level = level

    def __repr__(self) -> str:
        return f"ClientMetric({', '.join(self.names)})"

    def read(self, value: float | str | Distribution, *tags: str) -> Reading:
        assert len(tags) == len(self.tags), (self, tags)
        return Reading(self, tags, value)


def gauge(
    name: str, group: str, help: str, *, tags: tuple[str, ...] = (), level: Level = Level.INFO
) -> ClientMetric:
    """Declares a metric that is the current value."""
    return ClientMetric({name: Statistic.VALUE}, group, help, tags=tags, level=level)


def total(name: str, group: str, help: str, *, level: Level = Level.INFO) -> ClientMetric:
    """Declares a sum; `name` is its full name."""
    return ClientMetric({name: Statistic.TOTAL}, group, help, level=level)


def meter(
    stem: str,
    group: str,
    help: str,
    *,
    tags: tuple[str, ...] = (),
    per_hour: bool = False,
    level: Level = Level.INFO,
) -> ClientMetric:
    """Declares a sum and its rate, `…-total` and `…-rate`."""
    rate = Statistic.RATE_PER_HOUR if per_hour else Statistic.RATE
    names = {f"{stem}-{rate.value}": rate, f"{stem}-total": Statistic.TOTAL}
    return ClientMetric(names, group, help, tags=tags, level=level)


def distribution(
    stem: str,
    group: str,
    help: str,
    *statistics: Statistic,
    tags: tuple[str, ...] = (),
    level: Level = Level.INFO,
) -> ClientMetric:
    """Declares `…-avg` and `…-max`, or the given statistics, of a Distribution."""
    names = {f"{stem}-{each.value}": each for each in statistics or (Statistic.AVG, Statistic.MAX)}
    return ClientMetric(names, group, help, tags=tags, level=level)
