"""The invariants of a log, checked over a recorded history. Each returns what it found wrong.

Operations and their values:

    send          asked {tp, uid, pid?, seq?, durable?, retry?, weak?, key?, txn?}  ok {offset}
    poll, final   asked {tp, offset, iso?}  ok {records: [[offset, uid]…], hw, log_start, bad_crc?}
    list_offsets  asked {tp, at: latest|earliest}                    ok {offset, epoch?}
    delete        asked {tp, before}                                 ok {log_start}

and probes: `crash {kind}` (kill keeps the page cache, power does not), `fsync {tp, upto}`,
`hw {tp, log_start, lso, hw, end}`, `recovered {tp, start, end}`, `expired {tp, log_start}`.

A power loss may take what was neither fsynced nor acknowledged as durable: `Durability` says for
any two moments what a record needed to survive between them. All else counts for good.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lograft.simulation.errors import InvariantViolated
from lograft.simulation.history import History, Operation


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    message: str

    def raised(self) -> InvariantViolated:
        return InvariantViolated(self.invariant, self.message)


class Durability:
    """What the power losses of a history were allowed to take."""

    def __init__(self, history: History) -> None:
        self._losses: list[int] = []
        #: At each loss: partition -> everything below was on the metal.
        self._floors: list[dict[str, int]] = []
        floors: dict[str, int] = defaultdict(int)
        durable = {
            operation.completed: operation
            for operation in history.operations("send")
            if operation.type == "ok" and operation.asked.get("durable")
        }
        for event in history.events:
            if event.type == "probe" and event.f == "fsync":
                floors[event.v["tp"]] = max(floors[event.v["tp"]], event.v["upto"])
            elif event.type == "probe" and event.f == "crash" and event.v["kind"] == "power":
                self._losses.append(event.index)
                self._floors.append(dict(floors))
            elif event.index in durable:
                operation = durable[event.index]
                end = operation.answered["offset"] + 1
                floors[operation.asked["tp"]] = max(floors[operation.asked["tp"]], end)

    def floor(self, tp: str, after: int, before: int) -> int | None:
        """Offsets below survived every power loss between two places; None: there was none."""
        low = bisect_right(self._losses, after)
        high = bisect_right(self._losses, before)
        if low >= high:
            return None
        return min(floors.get(tp, 0) for floors in self._floors[low:high])

    def survives(self, tp: str, offset: int, after: int, before: int) -> bool:
        floor = self.floor(tp, after, before)
        return floor is None or offset < floor


def _ok(history: History, *kinds: str) -> list[Operation]:
    """What bindingly happened: a weak send (acks=1 in a cluster) binds nobody."""
    return [
        operation
        for operation in history.operations(*kinds)
        if operation.type == "ok" and not operation.asked.get("weak")
    ]


def no_loss(history: History) -> Iterator[Violation]:
    """D1: every acknowledged record is in the final read, unless it was deleted on demand."""
    durability = Durability(history)
    finals = {final.asked["tp"]: final for final in _ok(history, "final")}
    allowed = deletable(history)
    for tp, final in finals.items():
        if final.answered["log_start"] > allowed[tp]:
            yield Violation(
                "D1",
                f"{tp} starts at {final.answered['log_start']}, deletions reach {allowed[tp]}",
            )
    contents = {tp: dict(final.answered["records"]) for tp, final in finals.items()}
    for send in _ok(history, "send"):
        tp, offset, uid = send.asked["tp"], send.answered["offset"], send.asked["uid"]
        if tp not in finals or offset < finals[tp].answered["log_start"] or "key" in send.asked:
            continue
        is_promised = send.asked.get("durable") or durability.survives(
            tp, offset, send.invoked, finals[tp].invoked
        )
        if is_promised and contents[tp].get(offset) != uid:
            found = contents[tp].get(offset)
            yield Violation("D1", f"{tp}@{offset}: {uid} was acknowledged, the end holds {found}")


def deletable(history: History) -> dict[str, int]:
    allowed: dict[str, int] = defaultdict(int)
    for delete in history.operations("delete"):
        if delete.type != "fail":
            tp = delete.asked["tp"]
            allowed[tp] = max(allowed[tp], delete.asked["before"])
    for event in history.probes("expired"):
        allowed[event.v["tp"]] = max(allowed[event.v["tp"]], event.v["log_start"])
    return allowed


def _sightings(history: History) -> Iterator[tuple[Operation, int, str]]:
    """(who saw it, offset, uid), in order of completion."""
    for operation in sorted(_ok(history, "send", "poll", "final"), key=lambda each: each.completed):
        if operation.f == "send":
            yield operation, operation.answered["offset"], operation.asked["uid"]
        else:
            for offset, uid in operation.answered["records"]:
                yield operation, offset, uid


def agreement(history: History) -> Iterator[Violation]:
    """D2, D3: one offset holds one record, for all who look and for good."""
    durability = Durability(history)
    known: dict[tuple[str, int], tuple[str, Operation]] = {}
    for operation, offset, uid in _sightings(history):
        tp = operation.asked["tp"]
        first = known.get((tp, offset))
        # A loss between the earliest moment of one and the latest of the other excuses it.
        if (
            first is not None
            and first[0] != uid
            and durability.survives(tp, offset, first[1].invoked, operation.completed)
        ):
            invariant = "D3" if "send" not in (first[1].f, operation.f) else "D2"
            yield Violation(invariant, f"{tp}@{offset} is {first[0]} and later {uid}")
        known[tp, offset] = (uid, operation)


def real_time_order(history: History) -> Iterator[Violation]:
    """D4: what was acknowledged before another was sent lies before it."""
    durability = Durability(history)
    ends: dict[int, Operation] = {}
    sends = [send for send in _ok(history, "send") if not send.asked.get("retry")]
    for send in sends:
        ends[send.completed] = send
    starts = {send.invoked: send for send in sends}
    highest: dict[str, Operation] = {}
    seen_at_start: dict[int, Operation | None] = {}
    for event in history.events:
        if event.index in starts:
            send = starts[event.index]
            seen_at_start[event.index] = highest.get(send.asked["tp"])
        elif event.index in ends:
            send = ends[event.index]
            tp, offset = send.asked["tp"], send.answered["offset"]
            earlier = seen_at_start[send.invoked]
            if earlier is not None and offset <= earlier.answered["offset"]:
                lower = earlier.answered["offset"]
                if durability.survives(tp, lower, earlier.invoked, send.completed):
                    yield Violation(
                        "D4",
                        f"{tp}: {send.asked['uid']} at {offset} was sent after "
                        f"{earlier.asked['uid']} at {lower} was acknowledged",
                    )
            best = highest.get(tp)
            is_lost = best is not None and not durability.survives(
                tp, best.answered["offset"], best.invoked, send.completed
            )
            if best is None or is_lost or offset > best.answered["offset"]:
                highest[tp] = send


def no_skip(history: History) -> Iterator[Violation]:
    """D5: a poll leaves out no record that is known to lie in its range, and goes forward."""
    durability = Durability(history)
    known: dict[str, dict[int, Operation]] = defaultdict(dict)
    for send in _ok(history, "send"):
        if "key" in send.asked:
            continue
        known[send.asked["tp"]].setdefault(send.answered["offset"], send)
    for poll in _ok(history, "poll", "final"):
        tp, wanted = poll.asked["tp"], poll.asked["offset"]
        offsets = [offset for offset, _ in poll.answered["records"]]
        if not offsets:
            continue
        if offsets != sorted(set(offsets)) or offsets[0] < wanted:
            yield Violation("D5", f"{tp}: a poll at {wanted} returned {offsets[:20]}")
            continue
        returned = set(offsets)
        for offset in range(max(wanted, poll.answered["log_start"]), offsets[-1]):
            send_there = known[tp].get(offset)
            if offset in returned or send_there is None or send_there.completed > poll.invoked:
                continue
            if poll.asked.get("iso") and "txn" in send_there.asked:
                # Whether its transaction was committed is another question (T1-T4).
                continue
            if durability.survives(tp, offset, send_there.invoked, poll.completed):
                yield Violation("D5", f"{tp}: a poll at {wanted} left out {offset}")


def watermarks(history: History) -> Iterator[Violation]:
    """D6: log start <= LSO <= HW <= end, none goes back, and nobody reads past the HW.

    A restart begins a new leader epoch: the log start may be as old as its checkpoint, and the
    LSO begins anew; the HW counts across restarts.
    """
    durability = Durability(history)
    last: dict[str, tuple[int, dict[str, Any]]] = {}
    for event in history.events:
        v = event.v
        if event.type == "probe" and event.f == "recovered" and v["tp"] in last:
            at, before = last[v["tp"]]
            last[v["tp"]] = (at, {**before, "log_start": 0, "lso": 0})
        if event.type != "probe" or event.f != "hw":
            continue
        tp = v["tp"]
        if not v["log_start"] <= v["lso"] <= v["hw"] <= v["end"]:
            yield Violation("D6", f"{tp}: marks out of order: {v}")
        if tp in last:
            at, before = last[tp]
            floor = durability.floor(tp, at, event.index)
            for mark in ("log_start", "lso", "hw"):
                bound = before[mark] if floor is None else min(before[mark], floor)
                if v[mark] < bound:
                    yield Violation("D6", f"{tp}: {mark} went from {before[mark]} to {v[mark]}")
        last[tp] = (event.index, v)
    for poll in _ok(history, "poll", "final"):
        beyond = [offset for offset, _ in poll.answered["records"] if offset >= poll.answered["hw"]]
        if beyond:
            yield Violation("D6", f"{poll.asked['tp']}: read {beyond[0]} at or past the HW")
    yield from _latest_never_falls(history, durability)


def _latest_never_falls(history: History, durability: Durability) -> Iterator[Violation]:
    answers = [each for each in _ok(history, "list_offsets") if each.asked["at"] == "latest"]
    by_end = sorted(answers, key=lambda each: each.completed)
    highest: dict[str, Operation] = {}
    done = 0
    for later in answers:
        while done < len(by_end) and by_end[done].completed < later.invoked:
            earlier = by_end[done]
            best = highest.get(earlier.asked["tp"])
            if best is None or earlier.answered["offset"] >= best.answered["offset"]:
                highest[earlier.asked["tp"]] = earlier
            done += 1
        tp = later.asked["tp"]
        best = highest.get(tp)
        if best is None or later.answered["offset"] >= best.answered["offset"]:
            continue
        if later.answered.get("epoch", -1) < best.answered.get("epoch", -1):
            # A leader that does not know yet that it was deposed; its clients will.
            continue
        floor = durability.floor(tp, best.invoked, later.completed)
        if floor is None or later.answered["offset"] < min(floor, best.answered["offset"]):
            yield Violation(
                "D6",
                f"{tp}: the latest offset was {best.answered['offset']}, "
                f"then {later.answered['offset']}",
            )
        else:
            highest[tp] = later


def key_of(uid: str) -> str:
    """The record's key in a compacted topic: few, so that many records have the same."""
    return uid[-1:]


def compaction(history: History) -> Iterator[Violation]:
    """D11: of every key of a compacted topic the last acknowledged value is there, or a later."""
    newest: dict[tuple[str, str], Operation] = {}
    for send in _ok(history, "send"):
        if "key" not in send.asked:
            continue
        place = (send.asked["tp"], send.asked["key"])
        if place not in newest or send.answered["offset"] > newest[place].answered["offset"]:
            newest[place] = send
    for final in _ok(history, "final"):
        found = {key_of(uid): (offset, uid) for offset, uid in final.answered["records"]}
        for (tp, key), send in newest.items():
            if tp != final.asked["tp"] or send.completed > final.invoked:
                continue
            wanted = (send.answered["offset"], send.asked["uid"])
            there = found.get(key, (-1, ""))
            if there != wanted and there[0] <= wanted[0]:
                yield Violation("D11", f"{tp}: key {key} is {there}, acknowledged was {wanted}")


def recovery(history: History) -> Iterator[Violation]:
    """D9: a restart finds at least what was fsynced, and all of it after a mere kill."""
    floors: dict[str, int] = defaultdict(int)
    ends: dict[str, int] = {}
    for event in history.events:
        if event.type != "probe":
            continue
        v = event.v
        match event.f:
            case "fsync":
                floors[v["tp"]] = max(floors[v["tp"]], v["upto"])
            case "hw":
                ends[v["tp"]] = v["end"]
            case "crash":
                if v["kind"] == "power":
                    ends.clear()
            case "recovered":
                tp = v["tp"]
                least = max(floors[tp], ends.get(tp, 0))
                if v["end"] < least:
                    yield Violation("D9", f"{tp}: recovered to {v['end']}, {least} was safe")
                ends[tp] = v["end"]
            case _:
                pass


def integrity(history: History) -> Iterator[Violation]:
    """D10: no answer ever carries a batch with a bad CRC."""
    for poll in _ok(history, "poll", "final"):
        if poll.answered.get("bad_crc"):
            yield Violation("D10", f"{poll.asked['tp']}: a bad CRC reached a client")


def _idempotent(history: History) -> dict[str, Operation]:
    """The first attempt of each record of an idempotent producer."""
    sends: dict[str, Operation] = {}
    for send in history.operations("send"):
        if send.asked.get("pid", -1) >= 0:
            sends.setdefault(send.asked["uid"], send)
    return sends


def no_duplicates(history: History) -> Iterator[Violation]:
    """P1: a record of an idempotent producer is in the log at most once."""
    idempotent = _idempotent(history)
    for final in _ok(history, "final"):
        seen: dict[str, int] = {}
        for offset, uid in final.answered["records"]:
            if uid in seen and uid in idempotent:
                yield Violation("P1", f"{final.asked['tp']}: {uid} at {seen[uid]} and {offset}")
            seen[uid] = offset


def producer_order(history: History) -> Iterator[Violation]:
    """P2: records of one idempotent producer lie in the order of their sequences, which begin anew
    with every epoch."""
    idempotent = _idempotent(history)
    for final in _ok(history, "final"):
        last: dict[tuple[int, int], tuple[int, str]] = {}
        for _, uid in final.answered["records"]:
            send = idempotent.get(uid)
            if send is None:
                continue
            producer, seq = (send.asked["pid"], send.asked.get("epoch", 0)), send.asked["seq"]
            if producer in last and seq < last[producer][0]:
                yield Violation("P2", f"{final.asked['tp']}: {uid} lies after {last[producer][1]}")
            last[producer] = (seq, uid)


def dedup_window(history: History) -> Iterator[Violation]:
    """P3: a retry that is acknowledged gets the offset of the first attempt."""
    durability = Durability(history)
    first: dict[tuple[str, str], Operation] = {}
    for send in _ok(history, "send"):
        if send.asked.get("pid", -1) < 0:
            continue
        key = (send.asked["tp"], send.asked["uid"])
        earlier = first.setdefault(key, send)
        offset = earlier.answered["offset"]
        if send.answered["offset"] != offset and durability.survives(
            key[0], offset, earlier.invoked, send.completed
        ):
            yield Violation("P3", f"{key[0]}: {key[1]} at {offset} and {send.answered['offset']}")


Checker = Callable[[History], Iterator[Violation]]

CHECKERS: Final[tuple[Checker, ...]] = (
    no_loss,
    agreement,
    real_time_order,
    no_skip,
    watermarks,
    compaction,
    recovery,
    integrity,
    no_duplicates,
    producer_order,
    dedup_window,
)


def check(history: History) -> list[Violation]:
    return [violation for checker in CHECKERS for violation in checker(history)]
