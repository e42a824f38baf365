"""What a leader knows about each replica: the base of its decisions, and what people are shown."""

from typing import Final, NamedTuple

from lograft.model.types import NO_OFFSET, BrokerEpoch, NodeId, Offset
from lograft.replication.types import NO_BROKER_EPOCH, FollowerFetch

#: Never in this leader's time.
NEVER_MS: Final = -1


class ReplicaStatus(NamedTuple):
    """One line of `topics describe`."""

    node_id: NodeId
    #: NO_OFFSET: it has not fetched from this leader yet.
    log_start_offset: Offset
    end_offset: Offset
    #: Records that it misses; -1: unknown.
    lag: int
    in_sync: bool
    #: NEVER_MS: not since this leader leads.
    last_fetch_ms: int
    last_caught_up_ms: int
    broker_epoch: BrokerEpoch


class FollowerView:
    """One follower as its leader sees it. A follower in the ISR is given one lag time from the
    start of the leadership to show itself."""

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
        #: Everything below is in the follower's log (on its disk where the topic asks for that).
        self.end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        #: Its last fetch showed that its log is a prefix of the leader's.
        self.is_known_prefix = False
        self.last_fetch_ms = NEVER_MS
        #: The last time at which it held all that the leader held.
        self.last_caught_up_ms = now_ms if in_sync else NEVER_MS
        #: Of the registration that sent the last fetch.
        self.broker_epoch = NO_BROKER_EPOCH
        #: The leader's end when the last fetch came: whoever asks for it now had all of then.
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
        """Its end is still what its last fetch said."""
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
