"""The figures that `lograft top` shows, computed from the histories of the nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lograft.cli.cluster import format_size
from lograft.cli.node_history import Histories, NodeHistory, Values
from lograft.cli.output import NOTHING, count, table
from lograft.model.printable_text import printable

#: Three minutes of points are shown as a line.
TREND_POINTS: Final = 36
ROWS_MAX: Final = 10
_BARS: Final = "▁▂▃▄▅▆▇█"

Figure = float | None


@dataclass(frozen=True, slots=True)
class NodeFigures:
    node: int
    is_active_controller: bool
    in_bytes: Figure
    in_records: Figure
    out_bytes: Figure
    requests: Figure
    connections: Figure
    partitions_led: Figure
    under_replicated: Figure
    #: 99th percentiles, in seconds.
    flush_p99: Figure
    loop_delay_p99: Figure
    #: Share of one CPU.
    cpu: Figure
    memory: Figure
    #: Bytes per second in and out, oldest first.
    trend: Values


@dataclass(frozen=True, slots=True)
class TopicFigures:
    topic: str
    in_bytes: Figure
    in_records: Figure
    out_bytes: Figure
    trend: Values


@dataclass(frozen=True, slots=True)
class GroupFigures:
    group: str
    lag: Figure
    trend: Values


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    cluster_id: str
    in_bytes: Figure
    in_records: Figure
    out_bytes: Figure
    requests: Figure
    under_replicated: Figure
    leaderless: Figure
    lag: Figure
    nodes: tuple[NodeFigures, ...]
    #: Those with the most traffic.
    topics: tuple[TopicFigures, ...]
    #: Those with the largest lag.
    groups: tuple[GroupFigures, ...]
    #: Nodes that are not included, by name, and the reasons.
    missing: Mapping[str, str]


def figures_of(found: Histories) -> ClusterFigures:
    nodes = found.nodes

    def total(name: str) -> Figure:
        return _sum(node.last(name) for node in nodes)

    return ClusterFigures(
        cluster_id=nodes[0].cluster_id if nodes else "",
        in_bytes=total("in_bytes"),
        in_records=total("in_records"),
        out_bytes=total("out_bytes"),
        requests=total("requests"),
        under_replicated=total("under_replicated"),
        leaderless=_max(node.last("leaderless") for node in nodes),
        lag=total("lag"),
        nodes=tuple(_node_figures(node) for node in nodes),
        topics=_topics(nodes),
        groups=_groups(nodes),
        missing=found.missing,
    )


def _node_figures(node: NodeHistory) -> NodeFigures:
    return NodeFigures(
        node=node.node_id,
        is_active_controller=bool(node.last("active_controller")),
        in_bytes=node.last("in_bytes"),
        in_records=node.last("in_records"),
        out_bytes=node.last("out_bytes"),
        requests=node.last("requests"),
        connections=node.last("connections"),
        partitions_led=node.last("partitions_led"),
        under_replicated=node.last("under_replicated"),
        flush_p99=node.last("flush_p99"),
        loop_delay_p99=node.last("loop_delay_p99"),
        cpu=node.last("cpu"),
        memory=node.last("memory"),
        trend=_add([node.series.get("in_bytes", ()), node.series.get("out_bytes", ())]),
    )


def _topics(nodes: Sequence[NodeHistory]) -> tuple[TopicFigures, ...]:
    def sums(name: str) -> dict[str, Values]:
        return _sum_by_label(node.topics.get(name, {}) for node in nodes)

    ins, records, outs = sums("topic_in_bytes"), sums("topic_in_records"), sums("topic_out_bytes")
    found = [
        TopicFigures(
            topic=topic,
            in_bytes=_last(ins.get(topic, ())),
            in_records=_last(records.get(topic, ())),
            out_bytes=_last(outs.get(topic, ())),
            trend=_add([ins.get(topic, ()), outs.get(topic, ())]),
        )
        for topic in {*ins, *outs}
    ]
    return _top(found, lambda each: ((each.in_bytes or 0) + (each.out_bytes or 0), each.topic))


def _groups(nodes: Sequence[NodeHistory]) -> tuple[GroupFigures, ...]:
    lags = _sum_by_label(node.groups.get("group_lag", {}) for node in nodes)
    found = [
        GroupFigures(group=group, lag=_last(values), trend=values[-TREND_POINTS:])
        for group, values in lags.items()
        if _last(values) is not None
    ]
    return _top(found, lambda each: (each.lag or 0, each.group))


def _top(found: list, key: Callable) -> tuple:  # type: ignore[type-arg]
    return tuple(sorted(found, key=key, reverse=True)[:ROWS_MAX])


def _sum(figures: Iterable[Figure]) -> Figure:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _max(figures: Iterable[Figure]) -> Figure:
    return max((figure for figure in figures if figure is not None), default=None)


def _last(values: Values) -> Figure:
    return values[-1] if values else None


def _add(several: Sequence[Values]) -> Values:
    """Adds up series whose last points are of the same time."""
    length = min(TREND_POINTS, max(map(len, several), default=0))
    columns = (
        [values[-place] for values in several if len(values) >= place]
        for place in range(length, 0, -1)
    )
    return tuple(map(_sum, columns))


def _sum_by_label(found: Iterable[Mapping[str, Values]]) -> dict[str, Values]:
    by_label: dict[str, list[Values]] = {}
    for values_by_label in found:
        for label, values in values_by_label.items():
            by_label.setdefault(label, []).append(values)
    return {label: _add(values) for label, values in by_label.items()}


# ── as text ──────────────────────────────────────────────────────────────────────────────────


NODE_HEAD: Final = (
    *("NODE", "IN/s", "RECORDS/s", "OUT/s", "REQUESTS/s", "CONNECTIONS", "LEADS"),
    *("UNDER-REPLICATED", "FSYNC P99", "LOOP P99", "CPU", "MEMORY", "TREND"),
)
TOPIC_HEAD: Final = ("TOPIC", "IN/s", "RECORDS/s", "OUT/s", "TREND")
GROUP_HEAD: Final = ("GROUP", "LAG", "TREND")


def summary(figures: ClusterFigures) -> str:
    return (
        f"cluster {figures.cluster_id}: {count(len(figures.nodes), 'node')},"
        f" {bytes_text(figures.in_bytes)}/s in, {bytes_text(figures.out_bytes)}/s out,"
        f" {number_text(figures.in_records)} records/s, {number_text(figures.requests)} requests/s,"
        f" lag {number_text(figures.lag)},"
        f" {number_text(figures.under_replicated)} under-replicated,"
        f" {number_text(figures.leaderless)} without a leader"
    )


def node_rows(figures: ClusterFigures) -> list[Sequence[str]]:
    return [
        (
            f"{node.node}{' *' if node.is_active_controller else ''}",
            bytes_text(node.in_bytes),
            number_text(node.in_records),
            bytes_text(node.out_bytes),
            number_text(node.requests),
            number_text(node.connections),
            number_text(node.partitions_led),
            number_text(node.under_replicated),
            time_text(node.flush_p99),
            time_text(node.loop_delay_p99),
            NOTHING if node.cpu is None else f"{100 * node.cpu:.0f} %",
            bytes_text(node.memory),
            trend_text(node.trend),
        )
        for node in figures.nodes
    ]


def topic_rows(figures: ClusterFigures) -> list[Sequence[str]]:
    return [
        (
            printable(topic.topic),
            bytes_text(topic.in_bytes),
            number_text(topic.in_records),
            bytes_text(topic.out_bytes),
            trend_text(topic.trend),
        )
        for topic in figures.topics
    ]


def group_rows(figures: ClusterFigures) -> list[Sequence[str]]:
    return [
        # Group ids may contain anything, also what a terminal interprets.
        (printable(group.group), number_text(group.lag), trend_text(group.trend))
        for group in figures.groups
    ]


def missing_lines(figures: ClusterFigures) -> list[str]:
    return [f"{name} is not included: {reason}" for name, reason in figures.missing.items()]


def lines_of(figures: ClusterFigures) -> list[str]:
    """The figures as plain text."""
    lines = [summary(figures)]
    for head, rows in (
        (NODE_HEAD, node_rows(figures)),
        (TOPIC_HEAD, topic_rows(figures)),
        (GROUP_HEAD, group_rows(figures)),
    ):
        if rows:
            lines += ["", *table(head, rows)]
    missing = missing_lines(figures)
    return lines + (["", *missing] if missing else [])


def bytes_text(figure: Figure) -> str:
    return NOTHING if figure is None else format_size(round(figure))


def number_text(figure: Figure) -> str:
    if figure is None:
        return NOTHING
    return f"{figure:,.1f}" if 0 < figure < 10 and figure != round(figure) else f"{figure:,.0f}"


def time_text(seconds: Figure) -> str:
    if seconds is None:
        return NOTHING
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def trend_text(values: Values) -> str:
    """Draws the values as bars between 0 and the largest one."""
    shown = values[-TREND_POINTS:]
    largest = _max(shown) or 0
    return "".join(
        " "
        if value is None
        else _BARS[min(len(_BARS) - 1, int(value / largest * len(_BARS))) if largest > 0 else 0]
        for value in shown
    ).rstrip()
