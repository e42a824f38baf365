"""Writes docs/client-metrics.md: the metrics of producers, consumers and admin clients.

    python -m tools.generate_client_metrics

The declarations beside the objects that measure are the source. Kafka's names are in
tests/golden/clients; tests check that each is declared or listed in `ABSENT`.
"""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from lograft.client.metering.declarations import ClientMetric

ROOT: Final = Path(__file__).parents[1]
OUTPUT: Final = ROOT / "docs" / "client-metrics.md"
CLIENT: Final = ROOT / "src" / "lograft" / "client"
KAFKA_METRICS: Final = ROOT / "tests" / "golden" / "clients" / "metrics-4.3.1.tsv"
INTERFACE: Final = "lograft.client.metering.declarations"
#: Kinds of clients in the names of groups, and in the list of Kafka's names.
KINDS: Final = {"producer": "producer", "consumer": "consumer", "admin-client": "admin"}
#: Metrics of Kafka that do not exist here, and the reason.
ABSENT: Final = {
    r"(io|io-wait)-(ratio|time-ns-avg|time-ns-total)|select-(rate|total)": (
        "Kafka's clients have a thread that polls sockets. Here the event loop does, which belongs"
        " to the application."
    ),
    r"successful-authentication-no-reauth-total": (
        "A server-side metric: counts clients without re-authentication support; Kafka's clients"
        " count every connection in it."
    ),
    r"(application|background)-event.*|unsent-requests-.*|time-between-network-thread-poll-.*": (
        "Queues between the two threads of Kafka's consumer (group.protocol=consumer)."
    ),
    r"commit-id": "Releases of Lograft have a version only.",
}

INTRODUCTION: Final = """\
# Client metrics

`client.metrics()` returns the metrics of a producer, consumer or admin client under Kafka's names,
groups and tags, with Kafka's meaning: the figures of dashboards and alerts for Java clients apply.

```python
metrics = producer.metrics()
print(metrics.value("record-send-rate", "producer-metrics"))
print(metrics.value("record-send-total", topic="greetings"))
for name, value in metrics.items():
    print(name.group, name.name, dict(name.tags), value)
```

A name that ends in `-total` is a sum since the client was opened. Rates (`-rate`, `-ratio`),
averages and extremes (`-avg`, `-max`, `-min`) cover the last `metrics.num.samples` windows of
`metrics.sample.window.ms`, by default the last 30 to 60 seconds; without a value in that time,
averages and extremes are NaN. All metrics have the tag `client-id`. As in Kafka, no metric depends
on `metrics.recording.level`.

`metric_reporters=[…]` is a list of functions. Each is called with the result of `metrics()` at the
end of every window, and when the client closes. An exception of a reporter is logged.

## One declaration, three names

| where | name |
|---|---|
| `client.metrics()` | `record-send-total`, group `producer-topic-metrics`, tag `topic` |
| KIP-714 | `org.apache.kafka.producer.topic.record.send.total`, attribute `topic` |
| `/metrics` of a broker | `kafka_client_producer_topic_record_send_total`, label `topic` |

Metrics are declared once, next to the object that measures them, and the other names follow. They
are not named like the metrics of a node ([metrics.md](metrics.md)), because they exist in every
client of Kafka. Counting adds to attributes for each batch or request; the rest is computed when
metrics are read.

## Pushes to brokers (KIP-714)

Producers and consumers push the metrics that a cluster asks for, as Kafka's clients do.
`enable.metrics.push=false` disables it; admin clients push only with `enable.metrics.push=true`.
An operator subscribes with `kafka-client-metrics`; until then a client sends no telemetry requests
to a Lograft node. Pushes use connections that are open anyway. Their errors never reach the
application: the client pushes again at the next interval, or never again if the broker rejects the
content of its pushes.

`python -m tools.generate_client_metrics` generates this page. Metrics that Kafka does not have are
marked with \\*.
"""


class Declared(NamedTuple):
    metric: ClientMetric
    #: The kinds of clients that have it.
    kinds: tuple[str, ...]

    def groups(self) -> list[str]:
        return [self.metric.group.format(kind=kind) for kind in self.kinds]


class KafkaMetric(NamedTuple):
    client: str
    group: str
    name: str
    #: Without client-id.
    tags: frozenset[str]


def kafka_metrics() -> list[KafkaMetric]:
    found = []
    for line in KAFKA_METRICS.read_text().splitlines():
        client, group, name, tags = line.split("\t")
        found.append(KafkaMetric(client, group, name, frozenset(tags.split(",")) - {"client-id"}))
    return found


def declared_metrics() -> list[Declared]:
    found = []
    for file in sorted(CLIENT.rglob("*.py")):
        name = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        if name == INTERFACE or INTERFACE not in file.read_text():
            continue
        module = import_module(name)
        kinds = _kinds_of(name)
        for each in module.__annotations__:
            metric = getattr(module, each, None)
            if isinstance(metric, ClientMetric):
                found.append(Declared(metric, kinds))
    return found


def _kinds_of(module: str) -> tuple[str, ...]:
    if ".producing." in module:
        return ("producer",)
    if ".consuming." in module:
        return ("consumer",)
    return tuple(KINDS)


def declared_names() -> set[KafkaMetric]:
    """Returns the names of all declared metrics, in the form of Kafka's."""
    return {
        KafkaMetric(KINDS[kind], metric.group.format(kind=kind), name, frozenset(metric.tags))
        for metric, kinds in declared_metrics()
        for kind in kinds
        for name in metric.names
    }


def is_absent(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in ABSENT)


def page() -> str:
    declared = declared_metrics()
    lines = [INTRODUCTION]
    theirs = set(kafka_metrics())
    groups = sorted({each.metric.group for each in declared}, key=_order)
    for group in groups:
        lines += [f"## {_title(group)}", ""]
        lines += ["| metric | meaning | tags |", "|---|---|---|"]
        lines += _rows(group, declared, theirs)
        lines.append("")
    lines += ["## Metrics of Kafka that do not exist here", "", "| metric | reason |", "|---|---|"]
    for pattern, reason in ABSENT.items():
        names = sorted({each.name for each in theirs if re.fullmatch(pattern, each.name)})
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {reason} |")
    return "\n".join([*lines, ""])


def _order(group: str) -> tuple[bool, str]:
    return "{" not in group, group


def _title(group: str) -> str:
    if "{" not in group:
        return group
    return ", ".join(group.format(kind=kind) for kind in KINDS)


def _rows(group: str, declared: list[Declared], theirs: set[KafkaMetric]) -> Iterator[str]:
    for metric, kinds in declared:
        if metric.group != group:
            continue
        names = []
        for name in metric.names:
            as_theirs = {
                KafkaMetric(KINDS[kind], group.format(kind=kind), name, frozenset(metric.tags))
                for kind in kinds
            }
            names.append(f"`{name}`" + ("" if as_theirs <= theirs else r"\*"))
        tags = ", ".join(f"`{tag}`" for tag in metric.tags)
        help = metric.help
        if "{" in group and len(kinds) == 1:
            help += f" ({KINDS[kinds[0]]})"
        yield f"| {', '.join(names)} | {help} | {tags} |"


if __name__ == "__main__":
    OUTPUT.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {OUTPUT}\n")
