"""Lograft's targets, as ratios to Apache Kafka in the same run or as absolute limits."""

from dataclasses import dataclass
from typing import Final

#: Figures by server, workload and name.
Results = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Target:
    workload: str
    figure: str
    #: Has either a ratio to Kafka (a minimum if at_least is set) or a limit.
    ratio: float | None = None
    limit: float | None = None
    at_least: bool = False

    def value(self, results: Results) -> float | None:
        """Returns the ratio or the figure; None if it was not measured."""
        ours = results.get("lograft", {}).get(self.workload, {}).get(self.figure)
        if ours is None or self.limit is not None:
            return ours
        theirs = results.get("kafka", {}).get(self.workload, {}).get(self.figure)
        return ours / theirs if theirs else None

    def is_met(self, value: float) -> bool:
        bound = self.ratio if self.limit is None else self.limit
        assert bound is not None
        return value >= bound if self.at_least else value <= bound

    @property
    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.ratio:g} ×" if self.limit is None else f"{sign} {self.limit:g}"


PRODUCE: Final = ("produce-100B-all", "produce-100B-1", "produce-1KB-all", "produce-1KB-1")
GROUP_PROTOCOLS: Final = ("classic", "consumer")
TARGETS: Final[tuple[Target, ...]] = (
    *(Target(name, "cpu_s_per_gb", ratio=0.5) for name in PRODUCE),
    *(Target(name, "mb_per_s", ratio=1.2, at_least=True) for name in PRODUCE[2:]),
    Target("consume-100B", "cpu_s_per_gb", ratio=0.6),
    Target("consume-1KB", "cpu_s_per_gb", ratio=0.6),
    Target("small-idempotent", "cpu_us_per_request", ratio=0.5),
    Target("small-idempotent", "messages_per_s", ratio=1.5, at_least=True),
    Target("latency", "p50_ms", ratio=0.5),
    Target("latency", "p99_ms", ratio=1.0),
    Target("latency-under-load", "p50_ms", ratio=0.5),
    Target("latency-under-load", "p99_ms", ratio=1.0),
    *(Target(name, "rss_mb", ratio=0.125) for name in ("produce-1KB-all", "latency-under-load")),
    Target("start", "idle_rss_mb", limit=60),
    Target("start", "start_s", limit=0.5),
    Target("thousand-partitions", "create_and_first_produce_s", limit=10),
    Target("thousand-partitions", "idle_cpu_percent", limit=2),
    Target("thousand-partitions", "restart_s", limit=3),
    *(Target(f"heartbeats-{protocol}", "cpu_percent", limit=40) for protocol in GROUP_PROTOCOLS),
    *(Target(f"rebalance-{protocol}", "rebalance_s", limit=5) for protocol in GROUP_PROTOCOLS),
    Target("transactions", "transactions_per_s", limit=2000, at_least=True),
)
#: Three nodes of each, with replication factor 3.
CLUSTER_TARGETS: Final[tuple[Target, ...]] = (
    *(Target(name, "cpu_s_per_gb", ratio=0.5) for name in PRODUCE),
    *(Target(name, "mb_per_s", ratio=1.2, at_least=True) for name in PRODUCE[2:]),
    Target("small-idempotent", "messages_per_s", ratio=1.5, at_least=True),
    Target("latency", "p50_ms", ratio=0.7),
    Target("latency", "p99_ms", ratio=1.0),
    Target("produce-1KB-all", "rss_mb", ratio=0.125),
    Target("start", "start_s", limit=1.5),
    Target("leader-killed", "p50_s", ratio=0.25),
    Target("leader-paused", "p50_s", ratio=1.0),
    Target("offsets-loaded", "loaded_s", limit=5),
)
#: Raft mode, compared with a Kafka that also flushes before each acknowledgement.
RAFT_TARGETS: Final[tuple[Target, ...]] = (
    *(Target(name, "mb_per_s", ratio=1.2, at_least=True) for name in PRODUCE[2:]),
    Target("latency", "p50_ms", ratio=0.7),
    Target("leader-killed", "p50_s", ratio=0.25),
    Target("leader-paused", "p50_s", ratio=0.3),
)
