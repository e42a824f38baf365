"""The invariants of a cluster's history: those of one log, and what only many nodes can break.

Here nothing may be lost: the faults stay within what the cluster promises (cluster_faults.py). A
send that promises nothing (acks=1 or 0, whose leader may die) is marked `weak`: its offset binds
nobody, but what consumers saw of it does.
"""

from collections.abc import Iterator
from typing import Final

from lograft.model.errors import ErrorCode
from lograft.simulation.checkers import CHECKERS, Checker, Violation, deletable, recovery
from lograft.simulation.history import History


def no_truncation_seen(history: History) -> Iterator[Violation]:
    """D3: no consumer is ever told that what it read is gone, unless it was deleted."""
    allowed = deletable(history)
    for poll in history.operations("poll"):
        tp = poll.asked["tp"]
        if poll.answered.get("diverging"):
            yield Violation("D3", f"{tp}: what {poll.proc} read below {poll.asked['offset']} parts")
        if (
            poll.answered.get("error") == ErrorCode.OFFSET_OUT_OF_RANGE
            and poll.asked["offset"] >= allowed[tp]
        ):
            yield Violation(
                "D3", f"{tp}: {poll.asked['offset']} was read up to, and is out of range"
            )


def sequence_kept(history: History) -> Iterator[Violation]:
    """P3: a leader knows the sequence that the one before it acknowledged."""
    for send in history.operations("send"):
        code = send.answered.get("error")
        if (
            code
            in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.value, ErrorCode.UNKNOWN_PRODUCER_ID.value)
            and send.answered.get("is_first")
            and send.asked.get("pid", -1) >= 0
        ):
            yield Violation(
                "P3", f"{send.asked['tp']}: {send.asked['uid']} is next in line, answered {code}"
            )


def producer_ids_unique(history: History) -> Iterator[Violation]:
    """P4: a producer id belongs to one session, or to one transactional id."""
    owners: dict[int, str] = {}
    for send in history.operations("send"):
        pid = send.asked.get("pid", -1)
        owner = send.asked.get("id") or send.proc.partition("-")[0]
        if pid >= 0 and owners.setdefault(pid, owner) != owner:
            yield Violation("P4", f"{owners[pid]} and {owner} both have the producer id {pid}")


CLUSTER_CHECKERS: Final[tuple[Checker, ...]] = (
    # A history does not say which node recovered: D9 is the watch's.
    *(checker for checker in CHECKERS if checker is not recovery),
    no_truncation_seen,
    sequence_kept,
    producer_ids_unique,
)


def check_cluster(history: History) -> list[Violation]:
    return [violation for checker in CLUSTER_CHECKERS for violation in checker(history)]
