"""Every checker of groups and transactions is seen to fail, and not to fail for nothing."""

from typing import Any

import pytest

from campaigns.groups.checks import GROUP_CHECKERS
from campaigns.groups.transaction_checks import TRANSACTION_CHECKERS
from lograft.simulation.history import EventType, History

GROUP, TP = "g", "in-0"


class Story:
    """Writes a history in few words. Calls that end at once take one place after another."""

    def __init__(self) -> None:
        self.history = History()
        self._procs = 0

    def do(
        self, f: str, asked: dict[str, Any], answered: dict[str, Any], type: EventType = "ok"
    ) -> "Story":
        self._procs += 1
        proc = f"p{self._procs}"
        self.history.record(proc, "invoke", f, **asked)
        self.history.record(proc, type, f, **answered)
        return self

    def commit(
        self, offset: int, *, type: EventType = "ok", member: str = "m", epoch: int = -1, **v: Any
    ) -> "Story":
        asked = {"group": GROUP, "tp": TP, "offset": offset, "member": member, "epoch": epoch, **v}
        return self.do("commit", asked, {}, type)

    def fetch(self, offset: int) -> "Story":
        return self.do("offset_fetch", {"group": GROUP, "tp": TP}, {"offset": offset})

    def sync(self, member: str, epoch: int, *assigned: str, instance: str | None = None) -> "Story":
        asked = {"group": GROUP, "member": member, "epoch": epoch, "instance": instance}
        return self.do("sync", asked, {"assigned": list(assigned)})

    def beat(self, member: str, epoch: int, owns: list[str], told: list[str]) -> "Story":
        asked = {"group": GROUP, "member": member, "epoch": epoch, "owns": owns}
        return self.do("beat", asked, {"epoch": max(1, epoch), "assigned": told})

    def probe(self, f: str, **v: Any) -> "Story":
        self.history.record("watch", "probe", f, **v)
        return self

    def send(self, uid: str, offset: int, *, tp: str = TP, **asked: Any) -> "Story":
        return self.do("send", {"tp": tp, "uid": uid, **asked}, {"offset": offset})

    def poll(self, *records: tuple[int, str], f: str = "poll", tp: str = TP, **v: Any) -> "Story":
        asked = {"tp": tp, "offset": 0, **v}
        return self.do(f, asked, {"records": [list(each) for each in records], "hw": 100})

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
        asked = {
            "txn": txn, "id": "x", "commit": commit, "uids": uids or {}, "reads": list(reads),
            "offsets": list(offsets),
        }  # fmt: skip
        return self.do("txn_end", asked, {}, type)

    def found(self) -> list[str]:
        checkers = (*GROUP_CHECKERS, *TRANSACTION_CHECKERS)
        return [each.invariant for checker in checkers for each in checker(self.history)]


def story() -> Story:
    return Story()


VIOLATED: dict[str, tuple[Story, str]] = {
    "an offset goes back": (
        story().commit(7, type="info").commit(5).fetch(7).fetch(5), "G1"),
    "an offset that nobody committed": (story().commit(5).fetch(6), "G6"),
    "an acknowledged offset is lost": (story().commit(5).commit(7).fetch(5), "G6"),
    "offsets disappear": (story().commit(5).fetch(-1), "G6"),
    "offsets of an aborted transaction": (
        story().end("x#1", commit=False, offsets=((GROUP, TP, 9),)).fetch(9), "G6"),
    "a partition twice in a generation": (story().sync("a", 3, TP).sync("b", 3, TP), "G2"),
    "a partition before it is given up": (
        story().beat("a", 0, [], [TP]).beat("b", 0, [], [TP]), "G2"),
    "a commit of an older generation": (
        story().sync("a", 3).sync("b", 4).commit(5, member="a", epoch=3), "G3"),
    "a commit of who has left": (
        story().do("leave", {"group": GROUP, "member": "a"}, {})
        .commit(5, member="a", epoch=3), "G3"),
    "a commit of an older epoch for what is another's": (
        story().beat("a", 1, [], [TP]).beat("a", 4, [TP], []).commit(5, member="a", epoch=1), "G3"),
    "a commit of before a reset": (
        story().sync("a", 3).commit(0, reset=True, epoch=0).commit(5, member="a", epoch=3), "G3"),
    "a record that nobody processed": (
        story().send("r", 2).poll((0, "q"), group=GROUP).settled(3), "G5"),
    "an aborted record is read": (
        story().end("x#1", commit=False).poll((3, "x#1:1"), iso=1), "T1"),
    "a record of a dead producer is read": (story().poll((3, "x#1:1"), iso=1), "T1"),
    "a transaction in part": (
        story().end("x#1", uids={TP: ["x#1:1"], "b-0": ["x#1:2"]}, type="info")
        .poll((3, "x#1:1"), f="final_committed").poll(f="final_committed", tp="b-0"), "T2"),
    "a committed transaction is lost": (
        story().end("x#1", uids={TP: ["x#1:1"]}).poll(f="final_committed"), "T3"),
    "read before its commit": (story().poll((3, "x#1:1"), iso=1).end("x#1"), "T4"),
    "transactions that read each other": (
        story().end("x#1", reads=("x#2",)).end("x#2", reads=("x#1",)), "T5"),
    "copied twice": (
        story().end("x#1").end("x#2")
        .poll((0, "x#1:r"), (1, "x#2:r"), f="final_committed", tp="out-0"), "T8"),
    "not copied": (
        story().send("r", 2).poll(f="final_committed", tp="out-0").settled(3, copies=True), "T8"),
    "a sum that changes": (
        story().end("x#1").poll((0, "x#1:+5"), f="final_committed", tp="accounts-0"), "T9"),
    "an older epoch behind a newer": (
        story().send("x#1:1", 1, txn="x#1", pid=7, epoch=2, retry=False)
        .send("x#2:1", 0, txn="x#2", pid=7, epoch=3, retry=False)
        .poll((0, "x#2:1"), (1, "x#1:1"), f="final"), "P4"),
    "taken after its epoch was over": (
        story().do("init", {"id": "x"}, {"pid": 7, "epoch": 3})
        .send("x#1:1", 1, txn="x#1", pid=7, epoch=2, retry=False), "P4"),
}  # fmt: skip

FINE: dict[str, Story] = {
    "a lower offset was committed": story().commit(7).fetch(7).commit(5).fetch(5),
    "nobody knows which commit counted": story().commit(5).commit(7, type="info").fetch(7).fetch(7),
    "a late commit sets an offset back": story().commit(5).commit(7).commit(5, late=True).fetch(5),
    "nothing was committed": story().fetch(-1).commit(5, type="info").fetch(-1),
    "given up, then given": story()
    .beat("a", 0, [], [TP])
    .beat("a", 1, [], [])
    .beat("b", 0, [], [TP]),
    "its owner is dead": story()
    .beat("a", 0, [], [TP])
    .probe("member_died", group=GROUP, member="a")
    .beat("b", 0, [], [TP]),
    "its owner was given up": story()
    .beat("a", 0, [], [TP])
    .probe("member_gone", group=GROUP, member="a")
    .beat("b", 0, [], [TP]),
    "a static member comes back": story()
    .sync("a1", 3, TP, instance="a")
    .sync("a2", 3, TP, instance="a"),
    "an older epoch for what is its own": story()
    .beat("a", 1, [], [TP])
    .beat("a", 4, [TP], [TP])
    .commit(5, member="a", epoch=1),
    "after a reset in a new generation": story()
    .sync("a", 3)
    .commit(0, reset=True, epoch=0)
    .sync("a", 4)
    .commit(5, member="a", epoch=4),
    "an unknown end that was none": story()
    .end("x#1", uids={TP: ["x#1:1"]}, type="info")
    .poll(f="final_committed"),
    "everything as it should be": story()
    .send("r", 0)
    .poll((0, "r"), group=GROUP, iso=1)
    .end("x#1", uids={"out-0": ["x#1:r"]}, offsets=((GROUP, TP, 1),))
    .end("x#2", reads=("x#1",))
    .fetch(1)
    .settled(1, copies=True)
    .poll((0, "x#1:r"), f="final_committed", tp="out-0"),
}


@pytest.mark.parametrize("name", VIOLATED)
def test_it_is_noticed(name: str) -> None:
    told, invariant = VIOLATED[name]
    assert invariant in told.found()


@pytest.mark.parametrize("name", FINE)
def test_it_is_no_violation(name: str) -> None:
    assert FINE[name].found() == []
