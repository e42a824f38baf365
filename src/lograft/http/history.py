"""The last hour of the main series of a node, in memory.

Every five seconds the history collects the node's metrics, in slices like a scrape, and keeps one
point of each series. On a node with so many partitions that this takes more than a hundredth of the
time, it collects less often, and a point fills the time since the last one.

Memory: a series has `POINTS` numbers of four bytes. There are at most `len(SERIES)` series of the
node, and `LABEL_VALUES_MAX` for each series of a topic or group; the last value of every counter is
kept to compute its growth. A test asserts `BYTES_MAX`.

A history begins with the process. Before that there are no points, and while the process did not
run or could not collect (suspended, or an error), its points have no value (null in JSON).
"""

import asyncio
import json
import logging
import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nlargest
from itertools import islice
from typing import Final, NamedTuple

from lograft.http.history_series import SERIES, Kind, Series
from lograft.model.health import NodeIdentity
from lograft.model.metrics import (
    OTHER,
    SLICE_SAMPLES,
    Buckets,
    Histogram,
    Metric,
    Sample,
    Value,
    add_values,
)
from lograft.model.seams import Clock

STEP_MS: Final = 5_000
#: An hour.
POINTS: Final = 720
#: Some more, so that the oldest points are not overwritten while they are being written out.
_RING_POINTS: Final = POINTS + 6
#: Topics, and groups, that have series of their own: those with the highest values of late.
LABEL_VALUES_MAX: Final = 32
#: Size of the whole history, with the default limits of the metrics' labels.
BYTES_MAX: Final = 2 << 20
#: A collection may use this share of the time.
LOAD_MAX: Final = 0.01
#: Weight of the past when label values are ranked: it halves in about half a minute.
_RANK_DECAY: Final = 0.9

LOGGER: Final = logging.getLogger(__name__)


class History:
    def __init__(
        self,
        collect_samples: Callable[[], Iterator[Sample]],
        clock: Clock,
        *,
        series: Collection[Series] = SERIES,
    ) -> None:
        self._collect_samples = collect_samples
        self._clock = clock
        self._series = tuple(series)
        self._by_metric_name: dict[str, list[Series]] = {}
        for each in self._series:
            self._by_metric_name.setdefault(each.metric, []).append(each)
        self._rings = {each: _new_ring() for each in self._series if not each.by}
        #: By label, those of each label value.
        self._ranked: dict[str, _RankedRings] = {}
        for each in self._series:
            if each.by:
                self._ranked.setdefault(each.by, _RankedRings()).series.append(each)
        #: Points are numbered from the start of the clock.
        self._first = self._newest = clock.mono_ms() // STEP_MS
        self._newest_wall_ms = clock.wall_ms()
        self._previous: _Collection | None = None
        #: Steps between two points.
        self.stride = 1

    async def run(self) -> None:
        while True:
            due_ms = (self._clock.mono_ms() // STEP_MS + self.stride) * STEP_MS
            await asyncio.sleep((due_ms - self._clock.mono_ms()) / 1000)
            try:
                await self.take_point()
            except Exception:
                self._previous = None
                LOGGER.exception("could not collect metrics for the history")

    async def take_point(self) -> None:
        """Collects the metrics once. Between slices the event loop runs."""
        collection = _Collection(self._clock.mono_ms())
        used_ns = 0
        samples = self._collect_samples()
        while True:
            began_ns = self._clock.mono_ns()
            count = collection.add(islice(samples, SLICE_SAMPLES), self._by_metric_name)
            used_ns += self._clock.mono_ns() - began_ns
            if count < SLICE_SAMPLES:
                break
            await asyncio.sleep(0)
        points = self._advance(collection.at_ms)
        previous, self._previous = self._previous, collection
        if previous is not None and collection.at_ms > previous.at_ms:
            self._store(previous, collection, points)
        self.stride = max(1, math.ceil(used_ns / 1e6 / STEP_MS / LOAD_MAX))

    def write_json(
        self, identity: NodeIdentity, *, points: int, names: Collection[str]
    ) -> Iterator[str]:
        """Yields the text in slices, so that the event loop can run in between. `names`: only these
        series; empty for all."""
        last, first = self._newest, max(self._first, self._newest - points) + 1
        rings = list(self._list_rings())
        head = {
            "node_id": identity.node_id,
            "cluster_id": identity.cluster_id,
            "step_ms": STEP_MS,
            "end_ms": self._newest_wall_ms,
            "points": last - first + 1,
        }
        yield json.dumps(head)[:-1] + ', "series": ['
        separator = ""
        for series, label, ring in rings:
            if names and series.name not in names:
                continue
            described = {"name": series.name, "unit": series.unit}
            if series.by:
                described[series.by] = label
            values = ", ".join(
                _number(ring[slot % _RING_POINTS]) for slot in range(first, last + 1)
            )
            yield f'{separator}{json.dumps(described)[:-1]}, "values": [{values}]}}'
            separator = ",\n"
        yield "]}"

    @property
    def names(self) -> set[str]:
        return {series.name for series in self._series}

    # ── points ───────────────────────────────────────────────────────────────────────────────

    def _advance(self, now_ms: int) -> range:
        """Makes room for the points up to now, and returns those that the present values stand for:
        all since the last collection, unless much more time has passed than was planned."""
        oldest, self._newest = self._newest, now_ms // STEP_MS
        self._newest_wall_ms = self._clock.wall_ms()
        for _, _, ring in self._list_rings():
            for point in range(max(oldest + 1, self._newest - _RING_POINTS + 1), self._newest + 1):
                ring[point % _RING_POINTS] = math.nan
        is_gap = self._newest - oldest > self.stride + 1
        return range(self._newest if is_gap else oldest + 1, self._newest + 1)

    def _store(self, previous: "_Collection", collection: "_Collection", points: range) -> None:
        seconds = (collection.at_ms - previous.at_ms) / 1000
        for series, ring in self._rings.items():
            value = _value_of(series, previous, collection, seconds)
            for point in points:
                ring[point % _RING_POINTS] = value
        for ranked in self._ranked.values():
            values: dict[str, list[float]] = {}
            for index, series in enumerate(ranked.series):
                before = previous.by_label.get(series, {})
                for label, value in collection.by_label.get(series, {}).items():
                    if series.kind is Kind.RATE:
                        # A label value without an earlier value may have counted for long.
                        value = _growth(before.get(label, math.nan), value) / seconds
                    values.setdefault(label, [math.nan] * len(ranked.series))[index] = value
            ranked.store(values, points)

    def _list_rings(self) -> Iterator[tuple[Series, str, "array[float]"]]:
        for series, ring in list(self._rings.items()):
            yield series, "", ring
        for ranked in self._ranked.values():
            for label, rings in list(ranked.rings.items()):
                for series, ring in zip(ranked.series, rings, strict=True):
                    yield series, label, ring


class _RankedRings:
    """The series of the topics, or groups, with the highest values of late."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.rings: dict[str, list[array[float]]] = {}
        self._scores: dict[str, float] = {}

    def store(self, values: dict[str, list[float]], points: range) -> None:
        values.pop(OTHER, None)
        for label in list(self.rings):
            magnitude = _magnitude(values.get(label, ()))
            self._scores[label] = _RANK_DECAY * self._scores[label] + magnitude
            if label not in values and all(map(_is_empty, self.rings[label])):
                self._drop(label)
        self._admit(values)
        for label, rings in self.rings.items():
            for ring, value in zip(rings, values.get(label, ()), strict=False):
                for point in points:
                    ring[point % _RING_POINTS] = value

    def _admit(self, values: dict[str, list[float]]) -> None:
        """Gives rings to label values with high values, and takes those of others if needed."""
        new = {
            label: magnitude
            for label, numbers in values.items()
            if label not in self.rings and (magnitude := _magnitude(numbers)) > 0
        }
        for label in nlargest(LABEL_VALUES_MAX, new, key=new.__getitem__):
            if len(self.rings) >= LABEL_VALUES_MAX:
                lowest = min(self._scores, key=self._scores.__getitem__)
                if self._scores[lowest] >= new[label]:
                    return
                self._drop(lowest)
            self.rings[label] = [_new_ring() for _ in self.series]
            self._scores[label] = new[label]

    def _drop(self, label: str) -> None:
        del self.rings[label], self._scores[label]


class _Collection:
    """The values of one collection that the series need."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.values: dict[Series, Value] = {}
        self.by_label: dict[Series, dict[str, float]] = {}
        #: Bucket bounds of the histograms.
        self.bounds: dict[Series, tuple[float, ...]] = {}
        self._uses: dict[Metric, list[_Use]] = {}

    def add(self, samples: Iterator[Sample], by_metric: dict[str, list[Series]]) -> int:
        """Returns the number of samples."""
        count = 0
        for metric, labels, value in samples:
            count += 1
            uses = self._uses.get(metric)
            if uses is None:
                uses = self._uses[metric] = [
                    _Use.make(each, metric) for each in by_metric.get(metric.name, ())
                ]
            for series, condition, text, by in uses:
                if condition >= 0 and labels[condition] != text:
                    continue
                if by >= 0:
                    assert not isinstance(value, Buckets), metric
                    by_label = self.by_label.setdefault(series, {})
                    by_label[labels[by]] = by_label.get(labels[by], 0) + value
                    continue
                if isinstance(metric, Histogram):
                    self.bounds[series] = metric.bounds
                before = self.values.get(series)
                self.values[series] = value if before is None else add_values(before, value)
        return count


class _Use(NamedTuple):
    """How a series uses the samples of its metric."""

    series: Series
    #: Places in the labels of a sample; -1 for none.
    condition: int
    text: str
    by: int

    @classmethod
    def make(cls, series: Series, metric: Metric) -> "_Use":
        names = [label.name for label in metric.labels]
        name, text = series.where or ("", "")
        return cls(
            series,
            names.index(name) if name else -1,
            text,
            names.index(series.by) if series.by else -1,
        )


def _new_ring() -> "array[float]":
    return array("f", [math.nan]) * _RING_POINTS


def _is_empty(ring: "array[float]") -> bool:
    return all(map(math.isnan, ring))


def _magnitude(numbers: Iterable[float]) -> float:
    return sum(number for number in numbers if not math.isnan(number))


def _growth(before: float, now: float) -> float:
    """NaN if the counter decreased, since a counted object no longer exists."""
    return now - before if now >= before else math.nan


def _value_of(
    series: Series, previous: _Collection, collection: _Collection, seconds: float
) -> float:
    now, before = collection.values.get(series), previous.values.get(series)
    if now is None:
        return math.nan
    if isinstance(now, Buckets):
        if not isinstance(before, Buckets):
            return math.nan
        return _percentile(before, now, collection.bounds[series])
    if series.kind is Kind.GAUGE:
        return now
    assert not isinstance(before, Buckets), series
    return math.nan if before is None else _growth(before, now) / seconds


def _percentile(before: Buckets, now: Buckets, bounds: tuple[float, ...]) -> float:
    """The 99th percentile of the observations between two collections, interpolated linearly in its
    bucket as in Prometheus; NaN if there are none."""
    counts = [end - start for start, end in zip(before.counts, now.counts, strict=True)]
    total = sum(counts)
    if total <= 0 or min(counts) < 0:
        return math.nan
    rank, passed = 0.99 * total, 0
    for index, count in enumerate(counts[:-1]):
        if count and passed + count >= rank:
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (rank - passed) / count
        passed += count
    return bounds[-1]


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "null"
