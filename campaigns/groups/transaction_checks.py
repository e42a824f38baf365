"""Invariants of transactions over a recorded history: T1-T5, T8, T9, and P4 for their producers.

`final_committed {tp}` is the final read of a partition with read_committed, and polls with `iso` 1
also use read_committed. Records of a transaction start with its name (`x1.2#7:…`). T6 is checked at
the end of a run: no transaction holds back the last stable offset. T7 has no separate checker: a
late request that changes another transaction violates T1-T4."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from lograft.simulation.checkers import Checker, Violation
from lograft.simulation.history import History, Operation


def transaction_of(uid: str) -> str:
    return uid.rpartition(":")[0]


def _ends(history: History) -> dict[str, Operation]:
    """Returns the requested commits by transaction."""
    return {
        each.arguments["txn"]: each
        for each in history.operations("txn_end")
        if each.arguments["commit"]
    }


def _committed_records(history: History) -> dict[str, list[str]]:
    """Returns the final committed records by partition."""
    return {
        final.arguments["tp"]: [uid for _, uid in final.result["records"]]
        for final in history.operations("final_committed")
        if final.type == "ok"
    }


def nothing_aborted_is_read(history: History) -> Iterator[Violation]:
    """T1, T4: a read_committed consumer reads no records of a transaction that was not committed,
    and none before its commit was requested."""
    ends = _ends(history)
    for poll in history.operations("poll", "final_committed"):
        if poll.type != "ok" or (poll.f == "poll" and not poll.arguments.get("iso")):
            continue
        for offset, uid in poll.result["records"]:
            txn = transaction_of(uid)
            if not txn:
                continue
            end = ends.get(txn)
            where = f"{poll.arguments['tp']}@{offset}: {uid}"
            if end is None or end.type == "fail":
                yield Violation("T1", f"{where} was not committed, but read by {poll.proc}")
            elif end.invoked > poll.completed:
                yield Violation("T4", f"{where} was read by {poll.proc} before its commit")


def all_or_nothing(history: History) -> Iterator[Violation]:
    """T2, T3: committed transactions are visible, and no transaction is visible in part."""
    committed = {tp: set(uids) for tp, uids in _committed_records(history).items()}
    if not committed:
        return
    for txn, end in _ends(history).items():
        sent = [(tp, uid) for tp, uids in end.arguments["uids"].items() for uid in uids]
        missing = [(tp, uid) for tp, uid in sent if uid not in committed.get(tp, ())]
        if missing and len(missing) < len(sent):
            yield Violation("T2", f"{txn} is visible in part: {missing} of {sent} are missing")
        elif missing and end.type == "ok":
            yield Violation("T3", f"{txn} was committed, but is missing: {sent}")


def no_circular_reading(history: History) -> Iterator[Violation]:
    """T5: no committed transactions read each other's records, directly or indirectly."""
    ends = _ends(history)
    read_by = {
        txn: [other for other in end.arguments["reads"] if other in ends and other != txn]
        for txn, end in ends.items()
        if end.type != "fail"
    }
    # Topological sort: transactions that cannot be sorted are part of a cycle.
    pending: dict[str, int] = dict.fromkeys(read_by, 0)
    for others in read_by.values():
        for other in others:
            if other in pending:
                pending[other] += 1
    free = [txn for txn, count in pending.items() if not count]
    while free:
        txn = free.pop()
        del pending[txn]
        for other in read_by[txn]:
            if other in pending:
                pending[other] -= 1
                if not pending[other]:
                    free.append(other)
    if pending:
        yield Violation("T5", f"transactions that read each other: {sorted(pending)}")


def copied_once(history: History) -> Iterator[Violation]:
    """T8: every original record is copied exactly once."""
    committed = _committed_records(history)
    copies: dict[str, str] = {}
    for tp, uids in committed.items():
        for uid in uids if tp.startswith("out-") else ():
            txn, _, source = uid.rpartition(":")
            if not txn:
                continue
            if source in copies:
                yield Violation("T8", f"{source} was copied by {copies[source]} and {txn}")
            copies[source] = txn
    for settled in history.probes("settled"):
        if not settled.v["copies"]:
            continue
        offsets = dict(settled.v["offsets"])
        for send in history.operations("send"):
            tp = send.arguments["tp"]
            is_due = send.type == "ok" and send.result["offset"] < offsets.get(tp, 0)
            if is_due and send.arguments["uid"] not in copies:
                yield Violation(
                    "T8", f"{tp}: {send.arguments['uid']} was skipped without being copied"
                )


def sum_is_constant(history: History) -> Iterator[Violation]:
    """T9: transfers do not change the sum."""
    amounts: dict[str, int] = defaultdict(int)
    for tp, uids in _committed_records(history).items():
        for uid in uids if tp.startswith("accounts-") else ():
            txn, _, amount = uid.rpartition(":")
            if txn:
                amounts[txn] += int(amount)
    wrong = {txn: amount for txn, amount in amounts.items() if amount}
    if wrong:
        yield Violation("T9", f"the sum changed by {sum(wrong.values())}, because of {wrong}")


def epochs_increase(history: History) -> Iterator[Violation]:
    """P4: after a batch with a producer epoch, no batch with an older epoch is appended."""
    epochs: dict[str, tuple[int, int]] = {}
    for send in history.operations("send"):
        if "txn" in send.arguments:
            epochs[send.arguments["uid"]] = (send.arguments["pid"], send.arguments["epoch"])
    for final in history.operations("final"):
        if final.type != "ok":
            continue
        newest: dict[int, int] = {}
        for offset, uid in final.result["records"]:
            pid, epoch = epochs.get(uid, (-1, -1))
            if pid >= 0 and epoch < newest.get(pid, -1):
                yield Violation(
                    "P4",
                    f"{final.arguments['tp']}@{offset}: {uid} has epoch {epoch} of producer {pid},"
                    f" but follows epoch {newest[pid]}",
                )
            newest[pid] = max(newest.get(pid, -1), epoch)
    yield from _stale_sends(history)


def _stale_sends(history: History) -> Iterator[Violation]:
    """No record that was first sent with an ended epoch is acknowledged."""
    newest: dict[int, int] = {}
    identities = {each.completed: each for each in history.operations("init") if each.type == "ok"}
    sends = {
        each.invoked: each
        for each in history.operations("send")
        if "txn" in each.arguments and each.type == "ok" and not each.arguments["retry"]
    }
    for event in history.events:
        send, init = sends.get(event.index), identities.get(event.index)
        if send is not None and send.arguments["epoch"] < newest.get(send.arguments["pid"], -1):
            yield Violation(
                "P4", f"{send.arguments['uid']} was accepted with epoch {send.arguments['epoch']}"
                f" after epoch {newest[send.arguments['pid']]} was assigned",
            )  # fmt: skip
        if init is not None:
            pid, epoch = init.result["pid"], init.result["epoch"]
            newest[pid] = max(newest.get(pid, -1), epoch)


TRANSACTION_CHECKERS: Final[tuple[Checker, ...]] = (
    nothing_aborted_is_read,
    all_or_nothing,
    no_circular_reading,
    copied_once,
    sum_is_constant,
    epochs_increase,
)
