"""Plots a benchmark run: Lograft relative to Apache Kafka, in two panels.

    python -m bench.plot full full-3-nodes    # draws the plots of stored results again

The left panel has the figures where less is better, the right panel those where more is better.
Each bar is Lograft's figure as a percentage of Kafka's; the label shows both.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.targets import Results

DIRECTORY: Final = Path(__file__).parent / "results"
TITLES: Final = {
    "full": "One node",
    "full-3-nodes": "Three nodes, replication factor 3",
    "full-3-nodes-raft": "Three nodes, Raft mode beside Kafka with flush.messages=1",
}
BETTER: Final = "#2a7f62"
WORSE: Final = "#b3423a"


class Bar(NamedTuple):
    label: str
    workload: str
    figure: str
    unit: str


LESS_IS_BETTER: Final = (
    Bar("CPU to produce, 100 B, acks=all", "produce-100B-all", "cpu_s_per_gb", "s/GB"),
    Bar("CPU to produce, 1 KB, acks=all", "produce-1KB-all", "cpu_s_per_gb", "s/GB"),
    Bar("CPU to produce, 1 KB, acks=1", "produce-1KB-1", "cpu_s_per_gb", "s/GB"),
    Bar("CPU to consume, 100 B", "consume-100B", "cpu_s_per_gb", "s/GB"),
    Bar("CPU to consume, 1 KB", "consume-1KB", "cpu_s_per_gb", "s/GB"),
    Bar("CPU for a batch of 10, idempotent", "small-idempotent", "cpu_us_per_request", "µs"),
    Bar("End-to-end latency, p50", "latency", "p50_ms", "ms"),
    Bar("End-to-end latency, p99", "latency", "p99_ms", "ms"),
    Bar("Latency beside a fast writer, p50", "latency-under-load", "p50_ms", "ms"),
    Bar("Latency beside a fast writer, p99", "latency-under-load", "p99_ms", "ms"),
    Bar("Memory under load", "produce-1KB-all", "rss_mb", "MB"),
    Bar("Start to first acknowledgment", "start", "start_s", "s"),
    Bar("Leader killed, p50 of the pause", "leader-killed", "p50_s", "s"),
    Bar("Leader paused, p50 of the pause", "leader-paused", "p50_s", "s"),
)
MORE_IS_BETTER: Final = (
    Bar("Produce, 100 B, acks=all", "produce-100B-all", "mb_per_s", "MB/s"),
    Bar("Produce, 1 KB, acks=all", "produce-1KB-all", "mb_per_s", "MB/s"),
    Bar("Produce, 1 KB, acks=1", "produce-1KB-1", "mb_per_s", "MB/s"),
    Bar("Consume, 100 B", "consume-100B", "mb_per_s", "MB/s"),
    Bar("Consume, 1 KB", "consume-1KB", "mb_per_s", "MB/s"),
    Bar("Batches of 10, idempotent", "small-idempotent", "messages_per_s", "/s"),
    Bar("Transactions", "transactions", "transactions_per_s", "per s"),
)


class Measured(NamedTuple):
    bar: Bar
    lograft: float
    kafka: float


def find_measured(bars: tuple[Bar, ...], results: Results) -> list[Measured]:
    """Returns the bars for which the run has figures of both servers."""
    found = []
    for bar in bars:
        lograft, kafka = (
            results.get(server, {}).get(bar.workload, {}).get(bar.figure)
            for server in ("lograft", "kafka")
        )
        if lograft is not None and kafka:
            found.append(Measured(bar, lograft, kafka))
    return found


def write_plot(results: Results, form: str) -> None:
    """Writes no plot if only one server was measured."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = (
        "lograft"  # reproducible: the same figures give the same file
    )
    matplotlib.rcParams["font.size"] = 9
    from matplotlib import pyplot

    panels = [
        ("Less is better", find_measured(LESS_IS_BETTER, results), False),
        ("More is better", find_measured(MORE_IS_BETTER, results), True),
    ]
    rows = max(len(bars) for _title, bars, _more in panels)
    if not rows:
        return
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 0.34 * rows + 1.3))
    for axis, (title, bars, more) in zip(axes, panels, strict=True):
        _draw_panel(axis, title, bars, more_is_better=more, rows=rows)
    title = f"{TITLES.get(form, form)}: Lograft in % of Apache Kafka 4.3.1 (Lograft : Kafka)"
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(DIRECTORY / f"{form}.svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw_panel(
    axis: Any, title: str, bars: list[Measured], *, more_is_better: bool, rows: int
) -> None:
    percentages = [100 * bar.lograft / bar.kafka for bar in bars]
    right = max([100, *percentages]) * 1.8
    for row, (bar, percentage) in enumerate(zip(bars, percentages, strict=True)):
        is_better = (percentage > 100) == more_is_better
        axis.barh(row, percentage, height=0.62, color=BETTER if is_better else WORSE)
        axis.text(
            max(percentage, 100) + right * 0.012,
            row,
            f"{percentage:.0f} %  ({_show(bar.lograft)} : {_show(bar.kafka)} {bar.bar.unit})",
            va="center",
            fontsize=8,
        )
    axis.axvline(100, color="#555555", linewidth=1)
    axis.set_yticks(range(len(bars)), [bar.bar.label for bar in bars])
    axis.set_ylim(rows - 0.5, -0.5)
    axis.set_xlim(0, right)
    if right < 5 * 100:
        axis.set_xticks([0, 100], ["0", "Kafka = 100 %"])
    else:
        axis.set_xticks([100], ["Kafka = 100 %"])  # a label 0 beside it would be unreadable
    axis.set_title(title, fontsize=10, loc="left")
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)


def _show(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def main(forms: list[str]) -> None:
    for form in forms:
        record = json.loads((DIRECTORY / f"{form}.json").read_text())
        write_plot(record["results"], form)


if __name__ == "__main__":
    main(sys.argv[1:])
