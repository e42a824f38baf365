"""Metrics as text: OpenMetrics 1.0, or Prometheus' older format if a client does not accept it."""

from collections.abc import Iterator
from typing import Final

from lograft.model.metrics import Buckets, Counter, Families, Histogram, Metric

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
    escaped = _EscapedTexts()
    for metric in sorted(families.by_metric, key=lambda metric: metric.name):
        lines += _head(metric, openmetrics=openmetrics)
        pattern = _braces_pattern(metric)
        for labels, value in families.by_metric[metric].items():
            braces = pattern % tuple(map(escaped.__getitem__, labels))
            if isinstance(value, Buckets):
                lines += _histogram(metric, braces, value)
            else:
                assert value >= 0 or not isinstance(metric, Counter), (metric, labels, value)
                lines.append(f"{metric.name}{braces} {value!r}\n")
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


class _EscapedTexts(dict[str, str]):
    """The label values of one response, escaped: most of them occur many times."""

    def __missing__(self, text: str) -> str:
        escaped = self[text] = text.translate(_ESCAPES)
        return escaped


def _braces_pattern(metric: Metric) -> str:
    """Returns a pattern into which the escaped label values are formatted."""
    pairs = ",".join(f'{label.name}="%s"' for label in metric.labels)
    return f"{{{pairs}}}" if pairs else ""


def _histogram(metric: Metric, braces: str, value: Buckets) -> Iterator[str]:
    assert isinstance(metric, Histogram)
    start = f"{metric.name}_bucket{braces[:-1]}," if braces else f"{metric.name}_bucket{{"
    total = 0
    for bound, count in zip([*metric.bounds, float("inf")], value.counts, strict=True):
        total += count
        yield f'{start}le="{_bound(bound)}"}} {total}\n'
    yield f"{metric.name}_sum{braces} {value.sum!r}\n"
    yield f"{metric.name}_count{braces} {total}\n"


def _bound(bound: float) -> str:
    """OpenMetrics requires a canonical form: 1.0, not 1."""
    return "+Inf" if bound == float("inf") else repr(float(bound))
