"""Commits a query's offsets to its progress group, so that tools can show its lag. With a retention
hold the commits also protect unread records from deletion.

The query itself never reads these offsets: its state is in its checkpoint.
"""

from typing import Final

from lograft.model.seams import Clock
from lograft.spark.cluster import Cluster
from lograft.spark.offsets import Offsets
from lograft.spark.options import ReadOptions

#: A hold is renewed after this fraction of its duration, even if no records were read.
_RENEWALS_PER_HOLD: Final = 3


class Progress:
    """The progress group of a query. Does nothing if the options name none."""

    def __init__(self, options: ReadOptions, clock: Clock) -> None:
        self._group = options.progress_group
        self._hold_ms = options.retention_hold_ms
        self._clock = clock
        self._committed: Offsets = {}
        #: Time of the last commit, by the monotonic clock.
        self._committed_ms = 0
        #: Topics verified to allow holds of this group.
        self._holdable: set[str] = set()

    def commit(self, cluster: Cluster, offsets: Offsets) -> None:
        """Commits the offsets below which everything was read; does nothing if they are unchanged
        and no renewal is due."""
        group = self._group
        if group is None or not offsets or (offsets == self._committed and not self._is_due()):
            return
        until_ms = None
        if self._hold_ms is not None:
            topics = {partition.topic for partition in offsets}
            if not topics <= self._holdable:
                cluster.check_hold_allowed(group, topics - self._holdable)
                self._holdable |= topics
            until_ms = self._clock.wall_ms() + self._hold_ms
        cluster.commit_progress(group, offsets, held_until_ms=until_ms)
        self._committed, self._committed_ms = offsets, self._clock.mono_ms()

    def renew(self, cluster: Cluster) -> None:
        """Renews the hold of a query that is running but has read nothing new."""
        self.commit(cluster, self._committed)

    def _is_due(self) -> bool:
        if self._hold_ms is None:
            return False
        return self._clock.mono_ms() - self._committed_ms >= self._hold_ms / _RENEWALS_PER_HOLD
