"""Invariants of a cluster's history: those of a log, and those that only several nodes can violate.

No record may be lost, because the faults stay within the guarantees of the cluster
(cluster_faults.py). A send without guarantees (acks=1 or 0, whose leader may die) is marked `weak`:
its offset is not binding, but records that consumers read are."""

from collections.abc import Iterator
from typing import Final

from lograft.model.errors import ErrorCode
from lograft.simulation.checkers import CHECKERS, Checker, Violation, deletable_offsets, recovery
from lograft.simulation.history import History


def no_truncation_seen(history: History) -> Iterator[Violation]:
    """D3: no consumer receives an error that records which it has read are gone, unless they were
    deleted."""
    allowed = deletable_offsets(history)
    for poll in history.operations("poll"):
        tp = poll.arguments["tp"]
        if poll.result.get("diverging"):
            yield Violation(
                "D3",
                f"{tp}: records that {poll.proc} read below {poll.arguments['offset']} diverge",
            )
        if (
            poll.result.get("error") == ErrorCode.OFFSET_OUT_OF_RANGE
            and poll.arguments["offset"] >= allowed[tp]
        ):
            yield Violation(
                "D3", f"{tp}: {poll.arguments['offset']} was the read position, and is out of range"
            )


def sequence_kept(history: History) -> Iterator[Violation]:
    """P3: a new leader knows the last sequence number that its predecessor acknowledged."""
    for send in history.operations("send"):
        code = send.result.get("error")
        if (
            code
            in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.value, ErrorCode.UNKNOWN_PRODUCER_ID.value)
            and send.result.get("is_first")
            and send.arguments.get("pid", -1) >= 0
        ):
            yield Violation(
                "P3",
                f"{send.arguments['tp']}: {send.arguments['uid']} is the next sequence, but was"
                f" rejected with {code}",
            )


def producer_ids_unique(history: History) -> Iterator[Violation]:
    """P4: a producer ID belongs to one session, or to one transactional ID."""
    owners: dict[int, str] = {}
    for send in history.operations("send"):
        pid = send.arguments.get("pid", -1)
        owner = send.arguments.get("id") or send.proc.partition("-")[0]
        if pid >= 0 and owners.setdefault(pid, owner) != owner:
            yield Violation("P4", f"{owners[pid]} and {owner} both have producer ID {pid}")


CLUSTER_CHECKERS: Final[tuple[Checker, ...]] = (
    # A history does not contain which node recovered: the partition watch checks D9.
    *(checker for checker in CHECKERS if checker is not recovery),
    no_truncation_seen,
    sequence_kept,
    producer_ids_unique,
)


def check_cluster(history: History) -> list[Violation]:
    return [violation for checker in CLUSTER_CHECKERS for violation in checker(history)]
