"""Metrics as text: OpenMetrics 1.0, or Prometheus' older format if a client does not accept it."""

from collections.abc import Iterable, Iterator
from typing import Final

from lograft.model.metrics import Buckets, Counter, Families, Histogram, Metric, Value

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Series that are written before the event loop may run again.
SLICE_SERIES: Final = 200

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def is_openmetrics_accepted(accept: str) -> bool:
    return "application/openmetrics-text" in accept


def write_families(families: Families, *, openmetrics: bool) -> Iterator[str]:
    """Yields the text in slices, so that the event loop can run in between."""
    lines: list[str] = []
    written = 0
    for metric in sorted(families.by_metric, key=lambda metric: metric.name):
        lines += _head(metric, openmetrics=openmetrics)
        for labels, value in families.by_metric[metric].items():
            lines += _series(metric, labels, value)
            written += 1
            if written % SLICE_SERIES == 0:
                yield "".join(lines)
                lines.clear()
    if openmetrics:
        lines.append("# EOF\n")
    yield "".join(lines)


def _head(metric: Metric, *, openmetrics: bool) -> Iterator[str]:
    # In OpenMetrics the family of a counter is named without the suffix of its samples.
    name = metric.name.removesuffix("_total") if openmetrics else metric.name
    yield f"# TYPE {name} {metric.type}\n"
    if openmetrics and metric.unit:
        yield f"# UNIT {name} {metric.unit}\n"
    # OpenMetrics escapes quotes in help texts, the older format does not.
    escapes = _ESCAPES if openmetrics else _HELP_ESCAPES
    yield f"# HELP {name} {metric.help.translate(escapes)}\n"


def _series(metric: Metric, labels: tuple[str, ...], value: Value) -> Iterator[str]:
    pairs = [
        f'{label.name}="{text.translate(_ESCAPES)}"'
        for label, text in zip(metric.labels, labels, strict=True)
    ]
    if isinstance(value, Buckets):
        assert isinstance(metric, Histogram)
        yield from _histogram(metric, pairs, value)
    else:
        assert not isinstance(metric, Counter) or value >= 0, (metric, labels, value)
        yield f"{metric.name}{_braces(pairs)} {_number(value)}\n"


def _histogram(metric: Histogram, pairs: list[str], value: Buckets) -> Iterator[str]:
    total = 0
    for bound, count in zip([*metric.bounds, float("inf")], value.counts, strict=True):
        total += count
        le = f'le="{_bound(bound)}"'
        yield f"{metric.name}_bucket{_braces([*pairs, le])} {total}\n"
    yield f"{metric.name}_sum{_braces(pairs)} {_number(value.sum)}\n"
    yield f"{metric.name}_count{_braces(pairs)} {total}\n"


def _braces(pairs: Iterable[str]) -> str:
    joined = ",".join(pairs)
    return f"{{{joined}}}" if joined else ""


def _bound(bound: float) -> str:
    """OpenMetrics requires a canonical form: 1.0, not 1."""
    return "+Inf" if bound == float("inf") else repr(float(bound))


def _number(value: float) -> str:
    return repr(value)
