"""The main series of a node, which its history keeps, and the metrics from which they are computed.

Metrics are named as in docs/metrics.md. A series whose metric a node does not have (a controller
without a broker has no topics) has no values.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    #: Growth of a counter, per second.
    RATE = "rate"
    #: The value of a gauge.
    GAUGE = "gauge"
    #: The 99th percentile of what a histogram observed since the last point.
    P99 = "p99"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    name: str
    metric: str
    kind: Kind
    unit: str
    #: A label and its value: only samples with it are counted.
    where: tuple[str, str] | None = None
    #: The label by whose values the series is split; empty for one series of the whole node.
    by: str = ""


def _of_topic(name: str, metric: str, unit: str) -> Series:
    return Series(f"topic_{name}", metric, Kind.RATE, unit, by="topic")


SERIES: Final = (
    Series("requests", "lograft_requests_total", Kind.RATE, "1/s"),
    Series(
        "produce_requests", "lograft_requests_total", Kind.RATE, "1/s", where=("api", "Produce")
    ),
    Series("fetch_requests", "lograft_requests_total", Kind.RATE, "1/s", where=("api", "Fetch")),
    Series("in_bytes", "lograft_topic_in_bytes_total", Kind.RATE, "bytes/s"),
    Series("in_records", "lograft_topic_records_in_total", Kind.RATE, "1/s"),
    Series("out_bytes", "lograft_topic_out_bytes_total", Kind.RATE, "bytes/s"),
    Series("rejected_batches", "lograft_topic_rejected_batches_total", Kind.RATE, "1/s"),
    Series(
        "replication_in_bytes", "lograft_topic_replication_in_bytes_total", Kind.RATE, "bytes/s"
    ),
    Series(
        "replication_out_bytes", "lograft_topic_replication_out_bytes_total", Kind.RATE, "bytes/s"
    ),
    Series("connections", "lograft_connections", Kind.GAUGE, "1"),
    Series("connections_rejected", "lograft_connections_rejected_total", Kind.RATE, "1/s"),
    Series("partitions_led", "lograft_partitions", Kind.GAUGE, "1", where=("role", "leader")),
    Series("partitions", "lograft_partitions", Kind.GAUGE, "1"),
    Series("under_replicated", "lograft_partitions_under_replicated", Kind.GAUGE, "1"),
    Series("under_min_isr", "lograft_partitions_under_min_isr", Kind.GAUGE, "1"),
    Series("leaderless", "lograft_cluster_partitions_leaderless", Kind.GAUGE, "1"),
    Series("isr_shrinks", "lograft_isr_shrinks_total", Kind.RATE, "1/s"),
    Series("flush_p99", "lograft_log_flush_seconds", Kind.P99, "s"),
    Series("loop_delay_p99", "lograft_event_loop_delay_seconds", Kind.P99, "s"),
    Series("cpu", "process_cpu_seconds_total", Kind.RATE, "1"),
    Series("memory", "process_resident_memory_bytes", Kind.GAUGE, "bytes"),
    Series("log_size", "lograft_log_size_bytes", Kind.GAUGE, "bytes"),
    Series("active_controller", "lograft_controller_active", Kind.GAUGE, "1"),
    Series("metadata_lag", "lograft_metadata_lag", Kind.GAUGE, "1"),
    Series("lag", "lograft_group_lag", Kind.GAUGE, "1"),
    Series("group_lag", "lograft_group_lag", Kind.GAUGE, "1", by="group"),
    _of_topic("in_bytes", "lograft_topic_in_bytes_total", "bytes/s"),
    _of_topic("in_records", "lograft_topic_records_in_total", "1/s"),
    _of_topic("out_bytes", "lograft_topic_out_bytes_total", "bytes/s"),
)
