"""Tests that every checker of groups and transactions detects violations, and only those."""

from typing import Any

import pytest

from campaigns.groups.checks import GROUP_CHECKERS
from campaigns.groups.transaction_checks import TRANSACTION_CHECKERS
from lograft.simulation.history import EventType, History

GROUP, TP = "g", "in-0"


class Story:
    """Builds a history from short calls; each call is an operation that completes immediately."""

    def __init__(self) -> None:
        self.history = History()
        self._procs = 0

    def do(
        self, f: str, arguments: dict[str, Any], result: dict[str, Any], type: EventType = "ok"
    ) -> "Story":
        self._procs += 1
        proc = f"p{self._procs}"
        self.history.record(proc, "invoke", f, **arguments)
        self.history.record(proc, type, f, **result)
        return self

    def commit(
        self, offset: int, *, type: EventType = "ok", member: str = "m", epoch: int = -1, **v: Any
    ) -> "Story":
        arguments = {
            "group": GROUP,
            "tp": TP,
            "offset": offset,
            "member": member,
            "epoch": epoch,
            **v,
        }
        return self.do("commit", arguments, {}, type)

    def fetch(self, offset: int) -> "Story":
        return self.do("offset_fetch", {"group": GROUP, "tp": TP}, {"offset": offset})

    def sync(self, member: str, epoch: int, *assigned: str, instance: str | None = None) -> "Story":
        arguments = {"group": GROUP, "member": member, "epoch": epoch, "instance": instance}
        return self.do("sync", arguments, {"assigned": list(assigned)})

    def beat(self, member: str, epoch: int, owns: list[str], assigned: list[str]) -> "Story":
        arguments = {"group": GROUP, "member": member, "epoch": epoch, "owns": owns}
        return self.do("beat", arguments, {"epoch": max(1, epoch), "assigned": assigned})

    def probe(self, f: str, **v: Any) -> "Story":
        self.history.record("watch", "probe", f, **v)
        return self

    def send(self, uid: str, offset: int, *, tp: str = TP, **arguments: Any) -> "Story":
        return self.do("send", {"tp": tp, "uid": uid, **arguments}, {"offset": offset})

    def poll(self, *records: tuple[int, str], f: str = "poll", tp: str = TP, **v: Any) -> "Story":
        arguments = {"tp": tp, "offset": 0, **v}
        return self.do(f, arguments, {"records": [list(each) for each in records], "hw": 100})

    def settled(self, offset: int, *, copies: bool = False) -> "Story":
        return self.probe("settled", group=GROUP, offsets=[(TP, offset)], copies=copies)

    def end(
        self,
        txn: str,
        *,
        commit: bool = True,
        uids: dict[str, list[str]] | None = None,
        reads: tuple[str, ...] = (),
        offsets: tuple[tuple[str, str, int], ...] = (),
        type: EventType = "ok",
    ) -> "Story":
        arguments = {
            "txn": txn, "id": "x", "commit": commit, "uids": uids or {}, "reads": list(reads),
            "offsets": list(offsets),
        }  # fmt: skip
        return self.do("txn_end", arguments, {}, type)

    def violated_invariants(self) -> list[str]:
        checkers = (*GROUP_CHECKERS, *TRANSACTION_CHECKERS)
        return [each.invariant for checker in checkers for each in checker(self.history)]


def story() -> Story:
    return Story()


VIOLATED: dict[str, tuple[Story, str]] = {
    "offset moves back": (
        story().commit(7, type="info").commit(5).fetch(7).fetch(5), "G1"),
    "fetched offset was never committed": (story().commit(5).fetch(6), "G6"),
    "acknowledged commit is lost": (story().commit(5).commit(7).fetch(5), "G6"),
    "committed offset disappears": (story().commit(5).fetch(-1), "G6"),
    "offset of an aborted transaction is visible": (
        story().end("x#1", commit=False, offsets=((GROUP, TP, 9),)).fetch(9), "G6"),
    "partition assigned twice in a generation": (story().sync("a", 3, TP).sync("b", 3, TP), "G2"),
    "partition assigned before it is revoked": (
        story().beat("a", 0, [], [TP]).beat("b", 0, [], [TP]), "G2"),
    "commit with an older generation": (
        story().sync("a", 3).sync("b", 4).commit(5, member="a", epoch=3), "G3"),
    "commit by a member that has left": (
        story().do("leave", {"group": GROUP, "member": "a"}, {})
        .commit(5, member="a", epoch=3), "G3"),
    "commit with an older epoch for a revoked partition": (
        story().beat("a", 1, [], [TP]).beat("a", 4, [TP], []).commit(5, member="a", epoch=1), "G3"),
    "commit with an epoch from before a reset": (
        story().sync("a", 3).commit(0, reset=True, epoch=0).commit(5, member="a", epoch=3), "G3"),
    "record not processed": (
        story().send("r", 2).poll((0, "q"), group=GROUP).settled(3), "G5"),
    "aborted record is read": (
        story().end("x#1", commit=False).poll((3, "x#1:1"), iso=1), "T1"),
    "record of an unfinished transaction is read": (story().poll((3, "x#1:1"), iso=1), "T1"),
    "transaction visible in part": (
        story().end("x#1", uids={TP: ["x#1:1"], "b-0": ["x#1:2"]}, type="info")
        .poll((3, "x#1:1"), f="final_committed").poll(f="final_committed", tp="b-0"), "T2"),
    "committed transaction is lost": (
        story().end("x#1", uids={TP: ["x#1:1"]}).poll(f="final_committed"), "T3"),
    "record read before its commit": (story().poll((3, "x#1:1"), iso=1).end("x#1"), "T4"),
    "transactions that read each other": (
        story().end("x#1", reads=("x#2",)).end("x#2", reads=("x#1",)), "T5"),
    "record copied twice": (
        story().end("x#1").end("x#2")
        .poll((0, "x#1:r"), (1, "x#2:r"), f="final_committed", tp="out-0"), "T8"),
    "record not copied": (
        story().send("r", 2).poll(f="final_committed", tp="out-0").settled(3, copies=True), "T8"),
    "sum changes": (
        story().end("x#1").poll((0, "x#1:+5"), f="final_committed", tp="accounts-0"), "T9"),
    "older producer epoch after a newer one": (
        story().send("x#1:1", 1, txn="x#1", pid=7, epoch=2, retry=False)
        .send("x#2:1", 0, txn="x#2", pid=7, epoch=3, retry=False)
        .poll((0, "x#2:1"), (1, "x#1:1"), f="final"), "P4"),
    "record accepted with an ended epoch": (
        story().do("init", {"id": "x"}, {"pid": 7, "epoch": 3})
        .send("x#1:1", 1, txn="x#1", pid=7, epoch=2, retry=False), "P4"),
}  # fmt: skip

VALID: dict[str, Story] = {
    "lower offset was committed": story().commit(7).fetch(7).commit(5).fetch(5),
    "commit with unknown outcome took effect": story()
    .commit(5)
    .commit(7, type="info")
    .fetch(7)
    .fetch(7),
    "late commit moves the offset back": story().commit(5).commit(7).commit(5, late=True).fetch(5),
    "no offset was committed": story().fetch(-1).commit(5, type="info").fetch(-1),
    "partition revoked before it is assigned": story()
    .beat("a", 0, [], [TP])
    .beat("a", 1, [], [])
    .beat("b", 0, [], [TP]),
    "previous owner died": story()
    .beat("a", 0, [], [TP])
    .probe("member_died", group=GROUP, member="a")
    .beat("b", 0, [], [TP]),
    "previous owner was removed": story()
    .beat("a", 0, [], [TP])
    .probe("member_gone", group=GROUP, member="a")
    .beat("b", 0, [], [TP]),
    "static member rejoins": story()
    .sync("a1", 3, TP, instance="a")
    .sync("a2", 3, TP, instance="a"),
    "older epoch for an owned partition": story()
    .beat("a", 1, [], [TP])
    .beat("a", 4, [TP], [TP])
    .commit(5, member="a", epoch=1),
    "commit in a new generation after a reset": story()
    .sync("a", 3)
    .commit(0, reset=True, epoch=0)
    .sync("a", 4)
    .commit(5, member="a", epoch=4),
    "commit with unknown outcome was aborted": story()
    .end("x#1", uids={TP: ["x#1:1"]}, type="info")
    .poll(f="final_committed"),
    "complete valid history": story()
    .send("r", 0)
    .poll((0, "r"), group=GROUP, iso=1)
    .end("x#1", uids={"out-0": ["x#1:r"]}, offsets=((GROUP, TP, 1),))
    .end("x#2", reads=("x#1",))
    .fetch(1)
    .settled(1, copies=True)
    .poll((0, "x#1:r"), f="final_committed", tp="out-0"),
}


@pytest.mark.parametrize("name", VIOLATED)
def test_checker_detects_the_violation(name: str) -> None:
    invalid, invariant = VIOLATED[name]
    assert invariant in invalid.violated_invariants()


@pytest.mark.parametrize("name", VALID)
def test_checkers_accept_a_valid_history(name: str) -> None:
    assert VALID[name].violated_invariants() == []
