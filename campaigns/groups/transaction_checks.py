"""What transactions promise, over a recorded history: T1-T5, T8, T9, and P4 for their producers.

`final_committed {tp}` is the last read of a partition by a reader of committed records; polls with
`iso` 1 are such readers too. Records of a transaction begin with its name (`x1.2#7:…`). T6 is seen
at the end of a run: no partition keeps its last stable offset back. T7 has no checker of its own:
a late request that changes another transaction than its own is seen as T1-T4.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from lograft.simulation.checkers import Checker, Violation
from lograft.simulation.history import History, Operation


def transaction_of(uid: str) -> str:
    return uid.rpartition(":")[0]


def _ends(history: History) -> dict[str, Operation]:
    """By transaction: how it was meant to be committed; others were not."""
    return {
        each.asked["txn"]: each for each in history.operations("txn_end") if each.asked["commit"]
    }


def _committed(history: History) -> dict[str, list[str]]:
    """By partition: what readers of committed records find in the end."""
    return {
        final.asked["tp"]: [uid for _, uid in final.answered["records"]]
        for final in history.operations("final_committed")
        if final.type == "ok"
    }


def nothing_aborted_is_read(history: History) -> Iterator[Violation]:
    """T1, T4: whoever reads committed records gets nothing of a transaction that was not committed,
    nor before somebody asked for it."""
    ends = _ends(history)
    for poll in history.operations("poll", "final_committed"):
        if poll.type != "ok" or (poll.f == "poll" and not poll.asked.get("iso")):
            continue
        for offset, uid in poll.answered["records"]:
            txn = transaction_of(uid)
            if not txn:
                continue
            end = ends.get(txn)
            where = f"{poll.asked['tp']}@{offset}: {uid}"
            if end is None or end.type == "fail":
                yield Violation("T1", f"{where} was not committed, and is read by {poll.proc}")
            elif end.invoked > poll.completed:
                yield Violation("T4", f"{where} is read by {poll.proc} before its commit")


def all_or_nothing(history: History) -> Iterator[Violation]:
    """T2, T3: a committed transaction is there, and no transaction in part."""
    committed = {tp: set(uids) for tp, uids in _committed(history).items()}
    if not committed:
        return
    for txn, end in _ends(history).items():
        wanted = [(tp, uid) for tp, uids in end.asked["uids"].items() for uid in uids]
        missing = [(tp, uid) for tp, uid in wanted if uid not in committed.get(tp, ())]
        if missing and len(missing) < len(wanted):
            yield Violation("T2", f"{txn} is torn: of {wanted} there is no {missing}")
        elif missing and end.type == "ok":
            yield Violation("T3", f"{txn} was committed and is not there: {wanted}")


def no_circular_reading(history: History) -> Iterator[Violation]:
    """T5: no two committed transactions have read each other's records, directly or not."""
    ends = _ends(history)
    read_by = {
        txn: [other for other in end.asked["reads"] if other in ends and other != txn]
        for txn, end in ends.items()
        if end.type != "fail"
    }
    # A cycle is what is left when everything without readers or without read ones is taken away.
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
    """T8: the copies are the originals, each once."""
    committed = _committed(history)
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
            tp = send.asked["tp"]
            is_due = send.type == "ok" and send.answered["offset"] < offsets.get(tp, 0)
            if is_due and send.asked["uid"] not in copies:
                yield Violation("T8", f"{tp}: {send.asked['uid']} was passed, not copied")


def nothing_is_made_of_nothing(history: History) -> Iterator[Violation]:
    """T9: transfers leave the sum as it was."""
    amounts: dict[str, int] = defaultdict(int)
    for tp, uids in _committed(history).items():
        for uid in uids if tp.startswith("accounts-") else ():
            txn, _, amount = uid.rpartition(":")
            if txn:
                amounts[txn] += int(amount)
    wrong = {txn: amount for txn, amount in amounts.items() if amount}
    if wrong:
        yield Violation("T9", f"the sum is {sum(wrong.values())}, by {wrong}")


def epochs_go_up(history: History) -> Iterator[Violation]:
    """P4: after a producer got an epoch nothing older is appended anywhere."""
    epochs: dict[str, tuple[int, int]] = {}
    for send in history.operations("send"):
        if "txn" in send.asked:
            epochs[send.asked["uid"]] = (send.asked["pid"], send.asked["epoch"])
    for final in history.operations("final"):
        if final.type != "ok":
            continue
        newest: dict[int, int] = {}
        for offset, uid in final.answered["records"]:
            pid, epoch = epochs.get(uid, (-1, -1))
            if pid >= 0 and epoch < newest.get(pid, -1):
                yield Violation(
                    "P4",
                    f"{final.asked['tp']}@{offset}: {uid} has epoch {epoch} of {pid}, and lies"
                    f" after {newest[pid]}",
                )
            newest[pid] = max(newest.get(pid, -1), epoch)
    yield from _told_late(history)


def _told_late(history: History) -> Iterator[Violation]:
    """Nothing first sent with an epoch that was over is acknowledged."""
    newest: dict[int, int] = {}
    told = {each.completed: each for each in history.operations("init") if each.type == "ok"}
    sends = {
        each.invoked: each
        for each in history.operations("send")
        if "txn" in each.asked and each.type == "ok" and not each.asked["retry"]
    }
    for event in history.events:
        send, init = sends.get(event.index), told.get(event.index)
        if send is not None and send.asked["epoch"] < newest.get(send.asked["pid"], -1):
            yield Violation(
                "P4", f"{send.asked['uid']} was taken with epoch {send.asked['epoch']},"
                f" {newest[send.asked['pid']]} was given before",
            )  # fmt: skip
        if init is not None:
            pid, epoch = init.answered["pid"], init.answered["epoch"]
            newest[pid] = max(newest.get(pid, -1), epoch)


TRANSACTION_CHECKERS: Final[tuple[Checker, ...]] = (
    nothing_aborted_is_read,
    all_or_nothing,
    no_circular_reading,
    copied_once,
    nothing_is_made_of_nothing,
    epochs_go_up,
)
