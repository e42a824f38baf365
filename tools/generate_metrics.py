"""Writes docs/metrics.md: every metric of a node, with its type, labels and buckets.

    python -m tools.generate_metrics

The declarations beside the objects that measure are the source. A test checks that the page is up
to date.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

from lograft.model.metrics import Histogram, Label, Metric

ROOT: Final = Path(__file__).parents[1]
OUTPUT: Final = ROOT / "docs" / "metrics.md"
SOURCE: Final = ROOT / "src"
#: Declares types and labels, but no metrics.
INTERFACE: Final = "lograft.model.metrics"

INTRODUCTION: Final = """\
# Metrics

The metrics of a node; those of the clients of `lograft.client` are in
[client-metrics.md](client-metrics.md). Names follow the conventions of Prometheus: a counter ends
in `_total`, and the unit, if there is one, is the last word of the name before that. Where a label
has a maximum, further values of it are added up under `other`.

Metrics that clients push to a broker (KIP-714) have the prefix `kafka_client_` and the labels
`client_id` and `client_instance_id`, until a client has missed three of its intervals: the metric
`org.apache.kafka.producer.record.send.total` of any Kafka client becomes
`kafka_client_producer_record_send_total`. `kafka-client-metrics` creates a subscription.
[docs/internals/metrics.md](internals/metrics.md) describes how metrics are declared and collected.

`python -m tools.generate_metrics` generates this page from the declarations. A test checks that it
is up to date, and that each metric is collected.
"""


def declared_metrics() -> dict[str, list[Metric]]:
    """Metrics by module, in the order of their declaration. A declaration is an annotated name of a
    module (`NAME: Final = Counter(…)`), so that imported names are not declared again."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        if name == INTERFACE or INTERFACE not in file.read_text():
            continue
        module = import_module(name)
        declared = [getattr(module, each, None) for each in module.__annotations__]
        metrics = [each for each in declared if isinstance(each, Metric)]
        if metrics:
            found[name] = metrics
    return found


def describe_label(label: Label) -> str:
    if label.values:
        return f"`{label.name}`: " + ", ".join(label.values)
    return f"`{label.name}` (at most {label.values_max})"


def describe_bounds(metric: Histogram) -> str:
    return ", ".join(f"{bound:g}" if bound < 1 << 16 else f"{bound}" for bound in metric.bounds)


def rows_of(metrics: list[Metric]) -> Iterator[str]:
    for metric in metrics:
        labels = "; ".join(describe_label(label) for label in metric.labels)
        help = metric.help
        if isinstance(metric, Histogram):
            help += f" Buckets: {describe_bounds(metric)}."
        yield f"| `{metric.name}` | {metric.type} | {help} | {labels} |"


def page() -> str:
    lines = [INTRODUCTION]
    for module, metrics in declared_metrics().items():
        lines += [f"## `{module.removeprefix('lograft.')}`", ""]
        lines += ["| metric | type | meaning | labels |", "|---|---|---|---|"]
        lines += [*rows_of(metrics), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    OUTPUT.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {OUTPUT}\n")
