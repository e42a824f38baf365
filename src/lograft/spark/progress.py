"""How far a query is, for others to see: the offsets of its progress group. With a retention hold
they also keep what the query has not read from being deleted.

Nothing is ever read from there: what a query has done is in its checkpoint.
"""

from typing import Final

from lograft.model.seams import Clock
from lograft.spark.cluster import Cluster
from lograft.spark.offsets import Offsets
from lograft.spark.options import ReadOptions

#: A hold is renewed when this part of its time is over, even if nothing was read.
_RENEWALS: Final = 3


class Progress:
    def __init__(self, options: ReadOptions, clock: Clock) -> None:
        self._group = options.progress_group
        self._hold_ms = options.retention_hold_ms
        self._clock = clock
        self._told: Offsets = {}
        #: By the monotonic clock.
        self._told_ms = 0
        #: Topics that are known to let the group hold their records.
        self._holdable: set[str] = set()

    def tell(self, cluster: Cluster, done: Offsets) -> None:
        """Everything below these offsets is read. Costs nothing when that is known already."""
        group = self._group
        if group is None or not done or (done == self._told and not self._is_due()):
            return
        until_ms = None
        if self._hold_ms is not None:
            topics = {one.topic for one in done}
            if not topics <= self._holdable:
                cluster.check_may_hold(group, topics - self._holdable)
                self._holdable |= topics
            until_ms = self._clock.wall_ms() + self._hold_ms
        cluster.tell_progress(group, done, held_until_ms=until_ms)
        self._told, self._told_ms = done, self._clock.mono_ms()

    def renew(self, cluster: Cluster) -> None:
        """The query lives, though it has read nothing."""
        self.tell(cluster, self._told)

    def _is_due(self) -> bool:
        if self._hold_ms is None:
            return False
        return self._clock.mono_ms() - self._told_ms >= self._hold_ms / _RENEWALS
