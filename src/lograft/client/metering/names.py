"""The names of client metrics, and the values of all metrics of a client."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

#: Prefix of the telemetry names of Kafka's client metrics.
TELEMETRY_PREFIX: Final = "org.apache.kafka."


@dataclass(frozen=True, slots=True)
class MetricName:
    """Kafka's name of a metric. Two names are equal if name, group and tags are.

    name = MetricName("record-send-total", "producer-topic-metrics", (("topic", "greetings"),))
    assert name.tag("topic") == "greetings"
    assert name.telemetry_name == "org.apache.kafka.producer.topic.record.send.total"
    """

    name: str
    group: str
    #: Names and values, in the order of the names.
    tags: tuple[tuple[str, str], ...] = ()
    description: str = field(default="", compare=False)

    def tag(self, name: str) -> str | None:
        """Returns the value of a tag, or None if the metric does not have it."""
        return dict(self.tags).get(name)

    @property
    def telemetry_name(self) -> str:
        """The name under which clients push the metric to brokers (KIP-714)."""
        group = self.group.removesuffix("-metrics")
        return f"{TELEMETRY_PREFIX}{group}.{self.name}".replace("-", ".")


#: Only the metric `version` is text.
MetricValue = float | str


class ClientMetrics(Mapping[MetricName, MetricValue]):
    """The values of all metrics of a client at one time. As in Kafka, averages, maxima and minima
    without any value in their windows are NaN."""

    def __init__(self, values: dict[MetricName, MetricValue]) -> None:
        self._values = values

    def __getitem__(self, name: MetricName) -> MetricValue:
        return self._values[name]

    def __iter__(self) -> Iterator[MetricName]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ClientMetrics({len(self)} metrics)"

    def value(self, name: str, group: str | None = None, **tags: str) -> float:
        """Returns the value of the metric with this name, group and tags (`node_id` stands for
        node-id). Without a group, metrics that also have the tags topic or node-id are found only
        if one of these is given. Raises LookupError if there is no such metric, or more than one.

            metrics = producer.metrics()
            print(metrics.value("record-send-total"))
            print(metrics.value("record-send-total", topic="topic"))
        """
        requested = {tag.replace("_", "-"): value for tag, value in tags.items()}
        found = [
            (each, value)
            for each, value in self._values.items()
            if each.name == name
            and (group is None or each.group == group)
            and _matches(dict(each.tags), requested)
        ]
        if len(found) != 1:
            problem = "no metric" if not found else f"{len(found)} metrics"
            raise LookupError(f"{problem} {name!r} of group {group!r} with tags {requested}")
        value = found[0][1]
        if isinstance(value, str):
            raise LookupError(f"the metric {name!r} is text: {value!r}")
        return value


def _matches(tags: dict[str, str], requested: dict[str, str]) -> bool:
    """Whether the tags, besides client-id, are the requested ones."""
    return {"client-id": tags.get("client-id"), **requested} == tags
