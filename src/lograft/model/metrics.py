"""Metrics: each is declared once, next to the object that it measures, and read at collection only.

    ACCEPTED: Final = Counter(
        "lograft_connections_accepted_total", "Connections that were accepted.", LISTENER
    )

    class Server:
        def collect_samples(self) -> Iterator[Sample]:
            yield ACCEPTED.sample(self._accepted, self._name)

The values are plain attributes of the object (`self._accepted += 1`), so counting costs no more
than an attribute. There is no registry: an object yields its own samples and those of the objects
it owns, and `Families.gather` adds up samples with the same metric and labels.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar, Final, NamedTuple, Protocol

#: The label value under which all values beyond the label's limit are added up.
OTHER: Final = "other"
#: Samples that are gathered before the event loop may run again: some tenths of a millisecond,
#: and few enough that expensive ones (the state of a large group) do not add up to much.
SLICE_SAMPLES: Final = 200

#: Upper bounds of buckets, in seconds: for requests and other waits that are usually short.
LATENCY_BUCKETS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
#: For work that may take minutes: recovery, loading, cleaning.
DURATION_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)

#: Besides those of Prometheus' own client libraries for processes, and of kafka_exporter.
_NAME: Final = re.compile(r"(?:lograft|process|kafka)_[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]*")
_UNITS: Final = ("seconds", "bytes", "ratio")


class Label(NamedTuple):
    name: str
    #: Maximum number of distinct values per metric; samples with further values are added up under
    #: OTHER.
    values_max: int
    #: All values, if the code lists them; otherwise empty.
    values: tuple[str, ...] = ()


def enum_label(name: str, values: Iterable[str]) -> Label:
    """Returns a label whose values are listed in the code."""
    values_tuple = tuple(values)
    return Label(name, len(values_tuple), values_tuple)


LISTENER: Final = Label("listener", 64)
API: Final = Label("api", 128)


class Buckets(NamedTuple):
    """The observations of a histogram: one count per bucket, not cumulative, and one for values
    above the last bound."""

    counts: tuple[int, ...]
    sum: float


Value = float | Buckets


class Sample(NamedTuple):
    metric: "Metric"
    #: The values of the metric's labels, in their order.
    labels: tuple[str, ...]
    value: Value


class MetricSource(Protocol):
    def collect_samples(self) -> Iterator[Sample]:
        """Yields the current values. The caller may let the event loop run between two samples."""


class Metric:
    """Base class of the three types. Equal only to itself: a metric is declared once."""

    type: ClassVar[str]

    __slots__ = ("help", "labels", "name")

    def __init__(self, name: str, help: str, *labels: Label) -> None:
        assert _NAME.fullmatch(name), name
        assert name.endswith("_total") == isinstance(self, Counter), name
        assert help.endswith("."), name
        assert all(_LABEL.fullmatch(label.name) for label in labels), name
        assert len({label.name for label in labels}) == len(labels), name
        self.name = name
        #: One sentence.
        self.help = help
        self.labels = labels

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def unit(self) -> str:
        """Returns the last word of the name before _total if it is a unit; otherwise empty."""
        suffix = self.name.removesuffix("_total").rpartition("_")[2]
        return suffix if suffix in _UNITS else ""


class Counter(Metric):
    """Only increases, and starts at zero with the object that counts."""

    type = "counter"
    __slots__ = ()

    def sample(self, value: float, *labels: str) -> Sample:
        return Sample(self, labels, value)


class Gauge(Metric):
    type = "gauge"
    __slots__ = ()

    def sample(self, value: float, *labels: str) -> Sample:
        return Sample(self, labels, value)

    def sample_states(self, current: str) -> Iterator[Sample]:
        """Yields 1 for the current state, 0 for the others; the only label lists them."""
        (label,) = self.labels
        assert current in label.values, (self, current)
        for state in label.values:
            yield Sample(self, (state,), int(state == current))


class Histogram(Metric):
    """The number of observations in each bucket, and their sum."""

    type = "histogram"
    __slots__ = ("bounds",)

    def __init__(self, name: str, help: str, *labels: Label, bounds: tuple[float, ...]) -> None:
        super().__init__(name, help, *labels)
        assert list(bounds) == sorted(set(bounds)), name
        #: Inclusive upper bounds; everything above the last falls into one more bucket.
        self.bounds = bounds

    def make_recorder(self) -> "Recorder":
        return Recorder(self.bounds)

    def sample(self, recorder: "Recorder", *labels: str) -> Sample:
        return Sample(self, labels, Buckets(tuple(recorder.counts), recorder.sum))


class Recorder:
    """The observations of one object for one histogram."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`count`: the number of equal observations that this one represents."""
        self.counts[bisect_left(self._bounds, value)] += count
        self.sum += value * count


class Families:
    """One collection: the value of every time series, by metric."""

    def __init__(self) -> None:
        self.by_metric: dict[Metric, dict[tuple[str, ...], Value]] = {}
        #: The values of each label that have been shown, by metric.
        self._shown: dict[Metric, tuple[set[str], ...]] = {}

    def gather(self, samples: Iterator[Sample]) -> Iterator[None]:
        """Gathers all samples, a limited number of them between two steps of this iterator, so that
        the event loop can run in between:

            for _ in families.gather(node.collect_samples()):
                await asyncio.sleep(0)
        """
        while True:
            count = 0
            for sample in islice(samples, SLICE_SAMPLES):
                self._add(sample)
                count += 1
            if count < SLICE_SAMPLES:
                return
            yield

    def _add(self, sample: Sample) -> None:
        metric, labels, value = sample
        series = self.by_metric.get(metric)
        if series is None:
            series = self.by_metric[metric] = {}
        series_value = series.get(labels)
        if series_value is None and labels:
            labels = self._limit(metric, labels)
            series_value = series.get(labels)
        series[labels] = value if series_value is None else add_values(series_value, value)

    def _limit(self, metric: Metric, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the labels, with OTHER for each value beyond the label's limit."""
        shown = self._shown.get(metric)
        if shown is None:
            shown = self._shown[metric] = tuple(set() for _ in metric.labels)
        assert len(labels) == len(shown), (metric, labels)
        for value, values in zip(labels, shown, strict=True):
            if value not in values:
                return self._limit_new(metric, labels, shown)
        return labels

    def _limit_new(
        self, metric: Metric, labels: tuple[str, ...], shown: tuple[set[str], ...]
    ) -> tuple[str, ...]:
        limited = []
        for label, value, values in zip(metric.labels, labels, shown, strict=True):
            assert not label.values or value in label.values, (metric, label.name, value)
            if value not in values and len(values) < label.values_max:
                values.add(value)
            limited.append(value if value in values else OTHER)
        return tuple(limited)


def add_values(first: Value, second: Value) -> Value:
    if isinstance(first, Buckets):
        assert isinstance(second, Buckets)
        counts = zip(first.counts, second.counts, strict=True)
        return Buckets(
            tuple(first_count + second_count for first_count, second_count in counts),
            first.sum + second.sum,
        )
    assert not isinstance(second, Buckets)
    return first + second


def gather_all(samples: Iterator[Sample]) -> Families:
    """Gathers without pauses, for small objects and tests."""
    families = Families()
    for _ in families.gather(samples):
        pass
    return families


def value_of(measured: MetricSource, metric: Counter | Gauge, *labels: str) -> float:
    """Returns the sum of a metric's samples, or of those with these label values if any are given.
    Raises LookupError if there are none."""
    samples_found = [
        sample.value
        for sample in measured.collect_samples()
        if sample.metric is metric and (not labels or sample.labels == labels)
    ]
    if not samples_found:
        raise LookupError(f"no sample of {metric.name} {labels}")
    total: Value = 0
    for value in samples_found:
        total = add_values(total, value)
    assert not isinstance(total, Buckets)
    return total
