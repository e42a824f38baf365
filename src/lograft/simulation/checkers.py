"""Checks the invariants of a log over a recorded history. Each checker yields the violations it
found.

Operations, their arguments and their results:

    send          {tp, uid, pid?, seq?, durable?, retry?, weak?, key?, txn?}  ok {offset}
    poll, final   {tp, offset, iso?}  ok {records: [[offset, uid]…], hw, log_start, bad_crc?}
    list_offsets  {tp, at: latest|earliest}                          ok {offset, epoch?}
    delete        {tp, before}                                       ok {log_start}

and probes: `crash {kind}` (a kill keeps the page cache, a power loss does not), `fsync {tp, upto}`,
`hw {tp, log_start, lso, hw, end}`, `recovered {tp, start, end}`, `expired {tp, log_start}`.

A power loss may destroy records that were neither fsynced nor acknowledged as durable: `Durability`
tells which records had to survive between two moments. Everything else is permanent.
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

    def to_exception(self) -> InvariantViolated:
        return InvariantViolated(self.invariant, self.message)


class Durability:
    """Computes which records the power losses of a history were allowed to destroy."""

    def __init__(self, history: History) -> None:
        self._losses: list[int] = []
        #: At each loss: partition -> offset below which all records were on stable storage.
        self._floors: list[dict[str, int]] = []
        floors: dict[str, int] = defaultdict(int)
        durable = {
            operation.completed: operation
            for operation in history.operations("send")
            if operation.type == "ok" and operation.arguments.get("durable")
        }
        for event in history.events:
            if event.type == "probe" and event.f == "fsync":
                floors[event.v["tp"]] = max(floors[event.v["tp"]], event.v["upto"])
            elif event.type == "probe" and event.f == "crash" and event.v["kind"] == "power":
                self._losses.append(event.index)
                self._floors.append(dict(floors))
            elif event.index in durable:
                operation = durable[event.index]
                end = operation.result["offset"] + 1
                floors[operation.arguments["tp"]] = max(floors[operation.arguments["tp"]], end)

    def floor(self, tp: str, after: int, before: int) -> int | None:
        """Returns the offset below which records survived all power losses between two events, or
        None if there were none."""
        low = bisect_right(self._losses, after)
        high = bisect_right(self._losses, before)
        if low >= high:
            return None
        return min(floors.get(tp, 0) for floors in self._floors[low:high])

    def survives(self, tp: str, offset: int, after: int, before: int) -> bool:
        floor = self.floor(tp, after, before)
        return floor is None or offset < floor


def _ok(history: History, *kinds: str) -> list[Operation]:
    """Returns the successful operations, except weak sends (acks=1 in a cluster), which promise
    nothing."""
    return [
        operation
        for operation in history.operations(*kinds)
        if operation.type == "ok" and not operation.arguments.get("weak")
    ]


def no_loss(history: History) -> Iterator[Violation]:
    """D1: every acknowledged record is in the final read, unless it was deleted on request."""
    durability = Durability(history)
    finals = {final.arguments["tp"]: final for final in _ok(history, "final")}
    allowed = deletable_offsets(history)
    for tp, final in finals.items():
        if final.result["log_start"] > allowed[tp]:
            yield Violation(
                "D1",
                f"{tp} starts at {final.result['log_start']}, but deletions only reach"
                f" {allowed[tp]}",
            )
    contents = {tp: dict(final.result["records"]) for tp, final in finals.items()}
    for send in _ok(history, "send"):
        tp, offset, uid = send.arguments["tp"], send.result["offset"], send.arguments["uid"]
        if tp not in finals or offset < finals[tp].result["log_start"] or "key" in send.arguments:
            continue
        is_promised = send.arguments.get("durable") or durability.survives(
            tp, offset, send.invoked, finals[tp].invoked
        )
        if is_promised and contents[tp].get(offset) != uid:
            found = contents[tp].get(offset)
            yield Violation(
                "D1", f"{tp}@{offset}: {uid} was acknowledged, but the final read has {found}"
            )


def deletable_offsets(history: History) -> dict[str, int]:
    allowed: dict[str, int] = defaultdict(int)
    for delete in history.operations("delete"):
        if delete.type != "fail":
            tp = delete.arguments["tp"]
            allowed[tp] = max(allowed[tp], delete.arguments["before"])
    for event in history.probes("expired"):
        allowed[event.v["tp"]] = max(allowed[event.v["tp"]], event.v["log_start"])
    return allowed


def _observed_records(history: History) -> Iterator[tuple[Operation, int, str]]:
    """Yields (operation, offset, uid) for every record seen, in order of completion."""
    for operation in sorted(_ok(history, "send", "poll", "final"), key=lambda each: each.completed):
        if operation.f == "send":
            yield operation, operation.result["offset"], operation.arguments["uid"]
        else:
            for offset, uid in operation.result["records"]:
                yield operation, offset, uid


def agreement(history: History) -> Iterator[Violation]:
    """D2, D3: an offset has the same record for all clients and at all times."""
    durability = Durability(history)
    known: dict[tuple[str, int], tuple[str, Operation]] = {}
    for operation, offset, uid in _observed_records(history):
        tp = operation.arguments["tp"]
        first = known.get((tp, offset))
        # A loss between the start of the first and the end of the second operation excuses it.
        if (
            first is not None
            and first[0] != uid
            and durability.survives(tp, offset, first[1].invoked, operation.completed)
        ):
            invariant = "D3" if "send" not in (first[1].f, operation.f) else "D2"
            yield Violation(invariant, f"{tp}@{offset} is {first[0]} and later {uid}")
        known[tp, offset] = (uid, operation)


def real_time_order(history: History) -> Iterator[Violation]:
    """D4: a record acknowledged before another one was sent has the lower offset."""
    durability = Durability(history)
    ends: dict[int, Operation] = {}
    sends = [send for send in _ok(history, "send") if not send.arguments.get("retry")]
    for send in sends:
        ends[send.completed] = send
    starts = {send.invoked: send for send in sends}
    highest: dict[str, Operation] = {}
    seen_at_start: dict[int, Operation | None] = {}
    for event in history.events:
        if event.index in starts:
            send = starts[event.index]
            seen_at_start[event.index] = highest.get(send.arguments["tp"])
        elif event.index in ends:
            send = ends[event.index]
            tp, offset = send.arguments["tp"], send.result["offset"]
            earlier = seen_at_start[send.invoked]
            if earlier is not None and offset <= earlier.result["offset"]:
                lower = earlier.result["offset"]
                if durability.survives(tp, lower, earlier.invoked, send.completed):
                    yield Violation(
                        "D4",
                        f"{tp}: {send.arguments['uid']} at {offset} was sent after "
                        f"{earlier.arguments['uid']} at {lower} was acknowledged",
                    )
            best = highest.get(tp)
            is_lost = best is not None and not durability.survives(
                tp, best.result["offset"], best.invoked, send.completed
            )
            if best is None or is_lost or offset > best.result["offset"]:
                highest[tp] = send


def no_skip(history: History) -> Iterator[Violation]:
    """D5: a poll skips no record that is known to be in its range, and offsets increase."""
    durability = Durability(history)
    known: dict[str, dict[int, Operation]] = defaultdict(dict)
    for send in _ok(history, "send"):
        if "key" in send.arguments:
            continue
        known[send.arguments["tp"]].setdefault(send.result["offset"], send)
    for poll in _ok(history, "poll", "final"):
        tp, start = poll.arguments["tp"], poll.arguments["offset"]
        offsets = [offset for offset, _ in poll.result["records"]]
        if not offsets:
            continue
        if offsets != sorted(set(offsets)) or offsets[0] < start:
            yield Violation("D5", f"{tp}: a poll at {start} returned {offsets[:20]}")
            continue
        returned = set(offsets)
        for offset in range(max(start, poll.result["log_start"]), offsets[-1]):
            sent = known[tp].get(offset)
            if offset in returned or sent is None or sent.completed > poll.invoked:
                continue
            if poll.arguments.get("iso") and "txn" in sent.arguments:
                # Whether its transaction was committed is checked by T1-T4.
                continue
            if durability.survives(tp, offset, sent.invoked, poll.completed):
                yield Violation("D5", f"{tp}: a poll at {start} skipped {offset}")


def watermarks(history: History) -> Iterator[Violation]:
    """D6: log start <= LSO <= HW <= end; none of them moves back, and no client reads past the HW.

    A restart starts a new leader epoch: the log start may be as old as its checkpoint, and the LSO
    is determined again; the HW must not move back across restarts."""
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
            yield Violation("D6", f"{tp}: offsets out of order: {v}")
        if tp in last:
            at, before = last[tp]
            floor = durability.floor(tp, at, event.index)
            for mark in ("log_start", "lso", "hw"):
                bound = before[mark] if floor is None else min(before[mark], floor)
                if v[mark] < bound:
                    yield Violation(
                        "D6", f"{tp}: {mark} moved back from {before[mark]} to {v[mark]}"
                    )
        last[tp] = (event.index, v)
    for poll in _ok(history, "poll", "final"):
        beyond = [offset for offset, _ in poll.result["records"] if offset >= poll.result["hw"]]
        if beyond:
            yield Violation(
                "D6", f"{poll.arguments['tp']}: read {beyond[0]}, which is not below the HW"
            )
    yield from _latest_offset_never_decreases(history, durability)


def _latest_offset_never_decreases(history: History, durability: Durability) -> Iterator[Violation]:
    listings = [each for each in _ok(history, "list_offsets") if each.arguments["at"] == "latest"]
    by_end = sorted(listings, key=lambda each: each.completed)
    highest: dict[str, Operation] = {}
    done = 0
    for later in listings:
        while done < len(by_end) and by_end[done].completed < later.invoked:
            earlier = by_end[done]
            best = highest.get(earlier.arguments["tp"])
            if best is None or earlier.result["offset"] >= best.result["offset"]:
                highest[earlier.arguments["tp"]] = earlier
            done += 1
        tp = later.arguments["tp"]
        best = highest.get(tp)
        if best is None or later.result["offset"] >= best.result["offset"]:
            continue
        if later.result.get("epoch", -1) < best.result.get("epoch", -1):
            # A deposed leader that has not learned of the new epoch yet.
            continue
        floor = durability.floor(tp, best.invoked, later.completed)
        if floor is None or later.result["offset"] < min(floor, best.result["offset"]):
            yield Violation(
                "D6",
                f"{tp}: the latest offset was {best.result['offset']}, "
                f"then {later.result['offset']}",
            )
        else:
            highest[tp] = later


def key_of(uid: str) -> str:
    """Returns the record's key in a compacted topic; there are few keys, so that many records share
    one."""
    return uid[-1:]


def compaction(history: History) -> Iterator[Violation]:
    """D11: for every key of a compacted topic, the last acknowledged value or a later one
    exists."""
    # Of all sends, because a record whose outcome is unknown may have replaced an acknowledged one.
    keys = {
        send.arguments["uid"]: send.arguments["key"]
        for send in history.operations("send")
        if "key" in send.arguments
    }
    newest: dict[tuple[str, str], Operation] = {}
    for send in _ok(history, "send"):
        if "key" not in send.arguments:
            continue
        place = (send.arguments["tp"], send.arguments["key"])
        if place not in newest or send.result["offset"] > newest[place].result["offset"]:
            newest[place] = send
    for final in _ok(history, "final"):
        found = {keys[uid]: (offset, uid) for offset, uid in final.result["records"] if uid in keys}
        for (tp, key), send in newest.items():
            if tp != final.arguments["tp"] or send.completed > final.invoked:
                continue
            expected = (send.result["offset"], send.arguments["uid"])
            actual = found.get(key, (-1, ""))
            if actual != expected and actual[0] <= expected[0]:
                yield Violation(
                    "D11", f"{tp}: key {key} is {actual}, but {expected} was acknowledged"
                )


def recovery(history: History) -> Iterator[Violation]:
    """D9: a restart recovers at least all fsynced records, and after a kill all records."""
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
                    yield Violation(
                        "D9", f"{tp}: recovered up to {v['end']}, but {least} was durable"
                    )
                ends[tp] = v["end"]
            case _:
                pass


def integrity(history: History) -> Iterator[Violation]:
    """D10: no response ever contains a batch with a bad CRC."""
    for poll in _ok(history, "poll", "final"):
        if poll.result.get("bad_crc"):
            yield Violation(
                "D10", f"{poll.arguments['tp']}: a client received a batch with a bad CRC"
            )


def _first_attempts(history: History) -> dict[str, Operation]:
    """Returns the first attempt of each record of an idempotent producer."""
    sends: dict[str, Operation] = {}
    for send in history.operations("send"):
        if send.arguments.get("pid", -1) >= 0:
            sends.setdefault(send.arguments["uid"], send)
    return sends


def no_duplicates(history: History) -> Iterator[Violation]:
    """P1: a record of an idempotent producer is in the log at most once."""
    idempotent = _first_attempts(history)
    for final in _ok(history, "final"):
        seen: dict[str, int] = {}
        for offset, uid in final.result["records"]:
            if uid in seen and uid in idempotent:
                yield Violation("P1", f"{final.arguments['tp']}: {uid} at {seen[uid]} and {offset}")
            seen[uid] = offset


def producer_order(history: History) -> Iterator[Violation]:
    """P2: records of an idempotent producer are in the order of their sequence numbers, which
    restart with every epoch."""
    idempotent = _first_attempts(history)
    for final in _ok(history, "final"):
        last: dict[tuple[int, int], tuple[int, str]] = {}
        for _, uid in final.result["records"]:
            send = idempotent.get(uid)
            if send is None:
                continue
            producer, seq = (
                (send.arguments["pid"], send.arguments.get("epoch", 0)),
                send.arguments["seq"],
            )
            if producer in last and seq < last[producer][0]:
                yield Violation(
                    "P2", f"{final.arguments['tp']}: {uid} is after {last[producer][1]}"
                )
            last[producer] = (seq, uid)


def dedup_window(history: History) -> Iterator[Violation]:
    """P3: an acknowledged retry gets the offset of the first attempt."""
    durability = Durability(history)
    first: dict[tuple[str, str], Operation] = {}
    for send in _ok(history, "send"):
        if send.arguments.get("pid", -1) < 0:
            continue
        key = (send.arguments["tp"], send.arguments["uid"])
        earlier = first.setdefault(key, send)
        offset = earlier.result["offset"]
        if send.result["offset"] != offset and durability.survives(
            key[0], offset, earlier.invoked, send.completed
        ):
            yield Violation("P3", f"{key[0]}: {key[1]} at {offset} and {send.result['offset']}")


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
