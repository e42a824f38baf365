"""Writes packaging/monitoring/dashboard.json: a dashboard for Grafana of the metrics of all nodes.

    python -m tools.generate_dashboard

Panels are rows of the table below; Grafana's JSON follows from them. A test checks that the file is
up to date, and an interop test that every query returns series of a cluster under load.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

OUTPUT: Final = Path(__file__).parents[1] / "packaging" / "monitoring" / "dashboard.json"
#: Grafana's grid has 24 columns.
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 8
COLUMNS: Final = 3

#: Selects the nodes that the user of the dashboard has chosen.
NODES: Final = 'job="$job", instance=~"$instance"'


class Query(NamedTuple):
    expression: str
    #: Of a series, as Grafana writes it: `{{topic}}`.
    legend: str


class Panel(NamedTuple):
    title: str
    #: In Grafana's names: short, Bps, s, bytes, percentunit, reqps.
    unit: str
    queries: tuple[Query, ...]
    description: str = ""


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def gauge(metric: str, legend: str, *, by: str = "", where: str = "") -> Query:
    selector = f"{NODES}, {where}" if where else NODES
    return Query(f"sum by ({by}) ({metric}{{{selector}}})", legend)


def rate(metric: str, legend: str, *, by: str = "", where: str = "") -> Query:
    selector = f"{NODES}, {where}" if where else NODES
    return Query(f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))", legend)


def percentile(share: float, metric: str, legend: str, *, by: str = "", where: str = "") -> Query:
    selector = f"{NODES}, {where}" if where else NODES
    labels = f"{by}, le" if by else "le"
    buckets = f"sum by ({labels}) (rate({metric}_bucket{{{selector}}}[$__rate_interval]))"
    return Query(f"histogram_quantile({share}, {buckets})", legend)


def largest(count: int, query: Query) -> Query:
    return query._replace(expression=f"topk({count}, {query.expression})")


ROWS: Final = (
    Row(
        "Cluster",
        (
            Panel(
                "Nodes",
                "short",
                (
                    Query('sum(up{job="$job"})', "reachable"),
                    Query(f"max by (state) (lograft_brokers{{{NODES}}})", "{{state}} brokers"),
                    gauge("lograft_controller_active", "active controllers"),
                ),
            ),
            Panel(
                "Partitions with problems",
                "short",
                (
                    Query(
                        f"max(lograft_cluster_partitions_leaderless{{{NODES}}})", "without leader"
                    ),
                    gauge("lograft_partitions_under_min_isr", "under min.insync.replicas"),
                    gauge("lograft_partitions_under_replicated", "under-replicated"),
                    gauge("lograft_partitions_by_state", "offline", where='state="offline"'),
                ),
                "All should be 0.",
            ),
            Panel(
                "ISR changes and elections",
                "short",
                (
                    rate("lograft_isr_shrinks_total", "ISR shrinks"),
                    rate("lograft_isr_expansions_total", "ISR expansions"),
                    rate(
                        "lograft_controller_leader_elections_total",
                        "{{kind}} elections",
                        by="kind",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Traffic",
        (
            Panel(
                "Bytes",
                "Bps",
                (
                    rate("lograft_topic_in_bytes_total", "in"),
                    rate("lograft_topic_out_bytes_total", "out"),
                    rate("lograft_topic_replication_in_bytes_total", "replication"),
                ),
            ),
            Panel(
                "Records in, by topic",
                "short",
                (largest(10, rate("lograft_topic_records_in_total", "{{topic}}", by="topic")),),
            ),
            Panel(
                "Bytes out, by topic",
                "Bps",
                (largest(10, rate("lograft_topic_out_bytes_total", "{{topic}}", by="topic")),),
            ),
        ),
    ),
    Row(
        "Requests",
        (
            Panel(
                "Requests",
                "reqps",
                (largest(10, rate("lograft_requests_total", "{{api}}", by="api")),),
            ),
            Panel(
                "Time of requests, 99th percentile",
                "s",
                (
                    percentile(
                        0.99,
                        "lograft_request_seconds",
                        "{{api}}",
                        by="api",
                        where='api=~"Produce|Fetch|OffsetCommit|Heartbeat|Metadata"',
                    ),
                ),
                "Fetch includes the time for which a consumer waits for records.",
            ),
            Panel(
                "Stages of Produce, mean",
                "s",
                (
                    Query(
                        "sum by (stage) (rate(lograft_request_stage_seconds_sum{"
                        f'{NODES}, api="Produce"}}[$__rate_interval])) / sum by (stage) '
                        "(rate(lograft_request_stage_seconds_count{"
                        f'{NODES}, api="Produce"}}[$__rate_interval]))',
                        "{{stage}}",
                    ),
                ),
            ),
            Panel(
                "Errors in responses",
                "short",
                (
                    largest(
                        10,
                        rate("lograft_request_errors_total", "{{api}} {{error}}", by="api, error"),
                    ),
                ),
            ),
            Panel(
                "Waiting requests",
                "short",
                (gauge("lograft_delayed_requests", "{{operation}}", by="operation"),),
            ),
            Panel(
                "Connections",
                "short",
                (
                    gauge("lograft_connections", "{{listener}}", by="listener"),
                    rate("lograft_connections_rejected_total", "rejected per second"),
                ),
            ),
        ),
    ),
    Row(
        "Groups and transactions",
        (
            Panel(
                "Lag of groups",
                "short",
                (largest(10, gauge("lograft_group_lag", "{{group}}", by="group")),),
            ),
            Panel(
                "Groups",
                "short",
                (gauge("lograft_groups", "{{kind}} {{state}}", by="kind, state"),),
            ),
            Panel(
                "Transactions",
                "short",
                (
                    gauge("lograft_transactions_ongoing", "open"),
                    Query(
                        f"max(lograft_oldest_transaction_age_seconds{{{NODES}}})",
                        "age of the oldest, in seconds",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Logs",
        (
            Panel(
                "Size of all logs",
                "bytes",
                (gauge("lograft_log_size_bytes", "{{instance}}", by="instance"),),
            ),
            Panel(
                "fsync, 99th percentile",
                "s",
                (percentile(0.99, "lograft_log_flush_seconds", "{{instance}}", by="instance"),),
            ),
            Panel(
                "Retention and compaction",
                "Bps",
                (
                    rate("lograft_retention_deleted_bytes_total", "deleted"),
                    rate("lograft_cleaner_io_bytes_total", "compacted"),
                ),
            ),
        ),
    ),
    Row(
        "Nodes",
        (
            Panel(
                "CPU",
                "percentunit",
                (rate("process_cpu_seconds_total", "{{instance}}", by="instance"),),
            ),
            Panel(
                "Memory",
                "bytes",
                (gauge("process_resident_memory_bytes", "{{instance}}", by="instance"),),
            ),
            Panel(
                "Delay of the event loop, 99th percentile",
                "s",
                (
                    percentile(
                        0.99, "lograft_event_loop_delay_seconds", "{{instance}}", by="instance"
                    ),
                ),
            ),
            Panel(
                "Metadata lag",
                "short",
                (gauge("lograft_metadata_lag", "{{instance}}", by="instance"),),
                "Committed metadata records that a node has not applied yet.",
            ),
            Panel(
                "Epoch of the quorum",
                "short",
                (Query(f"max(lograft_quorum_epoch{{{NODES}}})", "epoch"),),
                "Each step is an election of the active controller.",
            ),
            Panel(
                "File descriptors",
                "percentunit",
                (
                    Query(
                        f"process_open_fds{{{NODES}}} / process_max_fds{{{NODES}}}",
                        "{{instance}}",
                    ),
                ),
            ),
        ),
    ),
)


def queries() -> list[Query]:
    return [query for row in ROWS for panel in row.panels for query in panel.queries]


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"h": 1, "w": PANEL_WIDTH * COLUMNS, "x": 0, "y": y}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "gridPos": place,
                "collapsed": False,
                "panels": [],
            }
        )
        y += 1
        for number, panel in enumerate(row.panels):
            x = number % COLUMNS
            place = {"h": PANEL_HEIGHT, "w": PANEL_WIDTH, "x": x * PANEL_WIDTH, "y": y}
            panels.append(panel_of(panel, len(panels) + 1, place))
            if x == COLUMNS - 1 or number == len(row.panels) - 1:
                y += PANEL_HEIGHT
    return {
        "title": "Lograft",
        "uid": "lograft",
        "description": "The nodes of a Lograft cluster",
        "tags": ["lograft"],
        "schemaVersion": 36,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                },
                variable("job", "Job", "label_values(lograft_metadata_offset, job)"),
                variable(
                    "instance",
                    "Node",
                    'label_values(lograft_metadata_offset{job="$job"}, instance)',
                    has_all=True,
                ),
            ]
        },
        "panels": panels,
    }


def variable(name: str, label: str, query: str, *, has_all: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "includeAll": has_all,
        "multi": has_all,
        "allValue": ".*" if has_all else None,
    }


def panel_of(panel: Panel, panel_id: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": panel_id,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": source,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"wrote {OUTPUT}\n")
