"""What clients pushed (KIP-714) as series of /metrics.

The name of a metric follows from its telemetry name: `org.apache.kafka.producer.record.send.total`
is `kafka_client_producer_record_send_total`. Attributes become labels, beside the client's id and
instance id. The names of the labels of a metric are those of all its series; a label that a series
does not have is empty, which Prometheus treats as absent.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import isnan
from typing import Final

from lograft.model.metrics import Counter, Gauge, Label, Sample
from lograft.wire.otlp import Point

PREFIX: Final = "kafka_client_"
KAFKA_PREFIX: Final = "org.apache.kafka."
#: Metrics with different names, and labels of one metric; points beyond are not shown.
NAMES_MAX: Final = 2_000
LABELS_MAX: Final = 24
#: Pushes limit the number of series, so no label needs a limit of its own.
_VALUES_MAX: Final = 1 << 30
_CLIENT_LABELS: Final = ("client_id", "client_instance_id")
_OTHER_CHARACTERS: Final = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=4 * NAMES_MAX)
def metric_name(telemetry_name: str, *, is_counter: bool) -> str:
    """Returns the name of the metric in Prometheus' format, in which only counters end in
    _total."""
    name = telemetry_name.removeprefix(KAFKA_PREFIX).lower()
    words = _OTHER_CHARACTERS.sub("_", name).strip("_").removesuffix("_total") or "unnamed"
    if words[0].isdigit():
        words = f"n{words}"
    return f"{PREFIX}{words}_total" if is_counter else f"{PREFIX}{words}"


@lru_cache(maxsize=4 * NAMES_MAX)
def label_name(attribute: str) -> str:
    """Returns the name of the label for an attribute; empty if nothing of it is left."""
    name = _OTHER_CHARACTERS.sub("_", attribute.lower()).strip("_").lstrip("0123456789_")
    return "" if name in _CLIENT_LABELS else name


class _Family:
    """All series with one name."""

    def __init__(self, name: str, telemetry_name: str, *, is_counter: bool) -> None:
        self._name = name
        self._help = f"Pushed by clients as {telemetry_name}."
        self._is_counter = is_counter
        self._labels: tuple[str, ...] = ()
        self.points = 0
        self.metric = self._declare()

    def add(self, labels: Iterable[str]) -> None:
        self.points += 1
        missing = set(labels).difference(self._labels)
        if missing and len(self._labels) + len(missing) <= LABELS_MAX:
            self._labels = tuple(sorted((*self._labels, *missing)))
            # A new object: a collection that has started continues with its labels.
            self.metric = self._declare()

    def _declare(self) -> Counter | Gauge:
        labels = [Label(name, _VALUES_MAX) for name in (*_CLIENT_LABELS, *self._labels)]
        kind = Counter if self._is_counter else Gauge
        return kind(self._name, self._help, *labels)


class ClientSeries:
    """The names and labels of the points that are kept. Points are removed when they were added."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def add(self, points: Iterable[Point]) -> None:
        for point in points:
            name = metric_name(point.name, is_counter=point.is_counter)
            family = self._families.get(name)
            if family is None:
                if len(self._families) >= NAMES_MAX:
                    continue
                family = _Family(name, point.name, is_counter=point.is_counter)
                self._families[name] = family
            family.add(filter(None, (label_name(key) for key, _ in point.attributes)))

    def remove(self, points: Iterable[Point]) -> None:
        for point in points:
            name = metric_name(point.name, is_counter=point.is_counter)
            family = self._families.get(name)
            if family is None:
                continue
            family.points -= 1
            if family.points <= 0:
                del self._families[name]

    def collect_samples(
        self, clients: Iterable[tuple[str, str, tuple[Point, ...]]]
    ) -> Iterator[Sample]:
        """Yields the series of these clients: client id, instance id and points. What is pushed
        during the collection belongs to the next one."""
        metrics = {name: family.metric for name, family in self._families.items()}
        for client_id, instance_id, points in clients:
            for point in points:
                metric = metrics.get(metric_name(point.name, is_counter=point.is_counter))
                if metric is not None and is_shown(point):
                    given = {label_name(key): text for key, text in point.attributes}
                    rest = (given.get(label.name, "") for label in metric.labels[2:])
                    yield metric.sample(point.value, client_id, instance_id, *rest)


def is_shown(point: Point) -> bool:
    """Whether the value can be shown: a counter is not negative, and NaN means no value."""
    return not isnan(point.value) and not (point.is_counter and point.value < 0)
