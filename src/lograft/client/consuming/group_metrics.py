"""What a consumer counts as the member of a group."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lograft.client.metering.declarations import (
    Distribution,
    Reading,
    Statistic,
    distribution,
    gauge,
    meter,
)
from lograft.model.seams import Clock

GROUP: Final = "consumer-coordinator-metrics"

ASSIGNED: Final = gauge("assigned-partitions", GROUP, "Partitions of the consumer.")
COMMITS: Final = meter("commit", GROUP, "OffsetCommit requests.")
COMMIT_LATENCIES: Final = distribution(
    "commit-latency", GROUP, "Milliseconds of an OffsetCommit request."
)
HEARTBEATS: Final = meter("heartbeat", GROUP, "Heartbeats sent.")
HEARTBEAT_TIMES: Final = distribution(
    "heartbeat-response-time", GROUP, "Milliseconds of a heartbeat.", Statistic.MAX
)
LAST_HEARTBEAT: Final = gauge(
    "last-heartbeat-seconds-ago", GROUP, "Seconds since the last heartbeat; -1 before the first."
)
JOINS: Final = meter("join", GROUP, "JoinGroup requests (group.protocol=classic).")
JOIN_TIMES: Final = distribution("join-time", GROUP, "Milliseconds of a JoinGroup request.")
SYNCS: Final = meter("sync", GROUP, "SyncGroup requests (group.protocol=classic).")
SYNC_TIMES: Final = distribution("sync-time", GROUP, "Milliseconds of a SyncGroup request.")
REBALANCES: Final = meter("rebalance", GROUP, "Rebalances that succeeded.", per_hour=True)
FAILED_REBALANCES: Final = meter(
    "failed-rebalance", GROUP, "Attempts to join that failed, and lost memberships.", per_hour=True
)
REBALANCE_LATENCIES: Final = distribution(
    "rebalance-latency",
    GROUP,
    "Milliseconds between the start of a rebalance and the assignment.",
    Statistic.AVG,
    Statistic.MAX,
    Statistic.TOTAL,
)
LAST_REBALANCE: Final = gauge(
    "last-rebalance-seconds-ago", GROUP, "Seconds since the last rebalance; -1 before the first."
)
ASSIGNED_LATENCIES: Final = distribution(
    "partition-assigned-latency", GROUP, "Milliseconds in the listener's `on_assigned`."
)
REVOKED_LATENCIES: Final = distribution(
    "partition-revoked-latency", GROUP, "Milliseconds in the listener's `on_revoked`."
)
LOST_LATENCIES: Final = distribution(
    "partition-lost-latency", GROUP, "Milliseconds in the listener's `on_lost`."
)


class GroupMetrics:
    """The counts of one consumer's membership and commits."""

    def __init__(
        self, clock: Clock, *, count_assigned: Callable[[], int], is_classic: bool
    ) -> None:
        self._clock = clock
        self._count_assigned = count_assigned
        self._is_classic = is_classic
        self.commits_ms = Distribution()
        self.heartbeats_ms = Distribution()
        self.joins_ms = Distribution()
        self.syncs_ms = Distribution()
        self.assigned_ms = Distribution()
        self.revoked_ms = Distribution()
        self.lost_ms = Distribution()
        self._rebalances_ms = Distribution()
        self._failed_rebalances = 0
        self._heartbeats = 0
        self._heartbeat_ms: int | None = None
        self._rebalance_started_ms: int | None = None
        self._rebalance_ended_ms: int | None = None

    @contextmanager
    def measure(self, times_ms: Distribution) -> Iterator[None]:
        """Records the milliseconds spent inside, unless it raises."""
        started_ms = self._clock.mono_ms()
        yield
        times_ms.record(self._clock.mono_ms() - started_ms)

    def on_heartbeat(self) -> None:
        self._heartbeats += 1
        self._heartbeat_ms = self._clock.mono_ms()

    def on_rebalance_started(self) -> None:
        """May be called again before the rebalance has ended."""
        if self._rebalance_started_ms is None:
            self._rebalance_started_ms = self._clock.mono_ms()

    def on_rebalance_ended(self) -> None:
        now_ms = self._rebalance_ended_ms = self._clock.mono_ms()
        started_ms, self._rebalance_started_ms = self._rebalance_started_ms, None
        self._rebalances_ms.record(0 if started_ms is None else now_ms - started_ms)

    def on_rebalance_failed(self) -> None:
        self._failed_rebalances += 1

    def collect_readings(self) -> Iterator[Reading]:
        yield ASSIGNED.read(self._count_assigned())
        yield COMMITS.read(self.commits_ms.count)
        yield COMMIT_LATENCIES.read(self.commits_ms)
        yield HEARTBEATS.read(self._heartbeats)
        yield HEARTBEAT_TIMES.read(self.heartbeats_ms)
        yield LAST_HEARTBEAT.read(self._seconds_since(self._heartbeat_ms))
        if self._is_classic:
            yield JOINS.read(self.joins_ms.count)
            yield JOIN_TIMES.read(self.joins_ms)
            yield SYNCS.read(self.syncs_ms.count)
            yield SYNC_TIMES.read(self.syncs_ms)
        yield REBALANCES.read(self._rebalances_ms.count)
        yield FAILED_REBALANCES.read(self._failed_rebalances)
        yield REBALANCE_LATENCIES.read(self._rebalances_ms)
        yield LAST_REBALANCE.read(self._seconds_since(self._rebalance_ended_ms))
        yield ASSIGNED_LATENCIES.read(self.assigned_ms)
        yield REVOKED_LATENCIES.read(self.revoked_ms)
        yield LOST_LATENCIES.read(self.lost_ms)

    def _seconds_since(self, at_ms: int | None) -> int:
        return -1 if at_ms is None else (self._clock.mono_ms() - at_ms) // 1_000
