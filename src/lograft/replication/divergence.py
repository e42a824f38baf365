"""Where the logs of two replicas diverge (KIP-101, KIP-279, KIP-320, KIP-595).

Two logs with a record of the same epoch at the same offset are equal up to that offset: an epoch
has one leader, and a leader writes each offset once. So the leader compares the end of the
follower's last epoch with the end of that epoch in its own log, and the follower truncates until
both logs end with the same epoch.
"""

from lograft.model.types import NO_EPOCH, NO_OFFSET, Epoch, Offset
from lograft.replication.types import EpochEnd


def diverging_epoch(
    *, last_fetched_epoch: Epoch, fetch_offset: Offset, own: EpochEnd
) -> EpochEnd | None:
    """Returns the end of the last common epoch, or None if the follower's log is a prefix of the
    leader's. `own` is the end of the follower's last epoch in the leader's log."""
    if own.epoch < last_fetched_epoch or own.end_offset < fetch_offset:
        return own
    return None


def truncation_offset(diverging: EpochEnd, *, own: EpochEnd, log_end: Offset) -> Offset:
    """Returns the offset to which the follower truncates. `own` is the end of the leader's
    diverging epoch in the follower's log. A log truncated to the end of an older epoch can still
    diverge, so the follower fetches again. The offset may be below the log start if the logs have
    nothing in common."""
    if own.epoch == NO_EPOCH or own.end_offset == NO_OFFSET:
        offset = diverging.end_offset
    elif own.epoch == diverging.epoch:
        offset = min(own.end_offset, diverging.end_offset)
    else:
        # This log has no such epoch: its records after the previous epoch are not the leader's.
        offset = own.end_offset
    return min(offset, log_end)
