"""A leader's view of each replica, on which it bases its decisions, and the status for users."""

from typing import Final, NamedTuple

from lograft.model.types import NO_OFFSET, BrokerEpoch, NodeId, Offset
from lograft.replication.types import NO_BROKER_EPOCH, FollowerFetch

#: Not since the start of this leadership.
NEVER_MS: Final = -1


class ReplicaStatus(NamedTuple):
    """Status of one replica, as in a line of `topics describe`."""

    node_id: NodeId
    #: NO_OFFSET if the replica has not fetched from this leader yet.
    log_start_offset: Offset
    end_offset: Offset
    #: Number of records that it lacks; -1 if unknown.
    lag: int
    in_sync: bool
    #: NEVER_MS if not since the start of this leadership.
    last_fetch_ms: int
    last_caught_up_ms: int
    broker_epoch: BrokerEpoch


class FollowerView:
    """A leader's view of one follower. A follower in the ISR has replica.lag.time.max.ms from the
    start of the leadership to send its first fetch."""

    __slots__ = (
        "_end_at_last_fetch",
        "broker_epoch",
        "end_offset",
        "is_known_prefix",
        "last_caught_up_ms",
        "last_fetch_ms",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: NodeId, *, in_sync: bool, now_ms: int) -> None:
        self.node_id = node_id
        #: Everything below is in the follower's log (on its disk if the topic requires that).
        self.end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        #: Whether its last fetch proved that its log is a prefix of the leader's.
        self.is_known_prefix = False
        self.last_fetch_ms = NEVER_MS
        #: The last time at which it was caught up with the leader's log end.
        self.last_caught_up_ms = now_ms if in_sync else NEVER_MS
        #: Broker epoch of the last fetch.
        self.broker_epoch = NO_BROKER_EPOCH
        #: The leader's log end at the last fetch. A follower that reaches this offset was caught up
        #: at the time of that fetch.
        self._end_at_last_fetch = NO_OFFSET

    def on_fetch(self, fetch: FollowerFetch, *, leader_end: Offset, now_ms: int) -> None:
        if fetch.offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self._end_at_last_fetch != NO_OFFSET and fetch.offset >= self._end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = fetch.offset
        self.log_start_offset = fetch.log_start_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = fetch.broker_epoch
        self._end_at_last_fetch = max(self._end_at_last_fetch, leader_end)

    def on_poll(self, *, leader_end: Offset, now_ms: int) -> None:
        """The follower polls within its session: its log end is unchanged since its last fetch."""
        self.last_fetch_ms = now_ms
        if self.end_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        self._end_at_last_fetch = max(self._end_at_last_fetch, leader_end)

    def is_caught_up(self, *, leader_end: Offset, lag_ms_max: int, now_ms: int) -> bool:
        if self.end_offset == leader_end:
            return True
        return self.last_caught_up_ms != NEVER_MS and now_ms - self.last_caught_up_ms <= lag_ms_max

    def status(self, *, leader_end: Offset, in_sync: bool) -> ReplicaStatus:
        lag = -1 if self.end_offset == NO_OFFSET else max(0, leader_end - self.end_offset)
        return ReplicaStatus(
            self.node_id,
            self.log_start_offset,
            self.end_offset,
            lag,
            in_sync,
            self.last_fetch_ms,
            self.last_caught_up_ms,
            self.broker_epoch,
        )
