"""Where the logs of two replicas part (KIP-101, KIP-279, KIP-320, KIP-595).

Two logs that hold a record of the same epoch at the same offset agree on everything below it: an
epoch has one leader, and a leader writes each offset once. So the leader compares the end of the
follower's last epoch with its own end of that epoch, and the follower steps back until both name
the same epoch.
"""

from lograft.model.types import NO_EPOCH, NO_OFFSET, Epoch, Offset
from lograft.replication.types import EpochEnd


def diverging_epoch(
    *, last_fetched_epoch: Epoch, fetch_offset: Offset, own: EpochEnd
) -> EpochEnd | None:
    """The leader's view: `own` is what its log knows about the follower's last epoch. None: the
    follower's log is a prefix of the leader's."""
    if own.epoch < last_fetched_epoch or own.end_offset < fetch_offset:
        return own
    return None


def truncation_offset(diverging: EpochEnd, *, own: EpochEnd, log_end: Offset) -> Offset:
    """The follower's view: `own` is what its log knows about the epoch that the leader named. It
    may have to be asked again: a log cut to the end of an older epoch can still diverge. The cut
    may lie below the log's start, when nothing of the log is the leader's."""
    if own.epoch == NO_EPOCH or own.end_offset == NO_OFFSET:
        cut = diverging.end_offset
    elif own.epoch == diverging.epoch:
        cut = min(own.end_offset, diverging.end_offset)
    else:
        # Not an epoch of ours: all that we wrote after the epoch before it is not the leader's.
        cut = own.end_offset
    return min(cut, log_end)
