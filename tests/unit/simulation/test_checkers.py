"""Every checker is seen to fail: one that never did would prove nothing."""

from typing import Any

import pytest

from lograft.simulation.checkers import Violation, check
from lograft.simulation.history import History

TP = "a-0"


class Story:
    """Writes a history in few words. Calls that end at once take one place after another."""

    def __init__(self) -> None:
        self.history = History()
        self._procs = 0

    def _do(self, f: str, asked: dict[str, Any], answered: dict[str, Any]) -> "Story":
        self._procs += 1
        proc = f"p{self._procs}"
        self.history.record(proc, "invoke", f, **asked)
        self.history.record(proc, "ok", f, **answered)
        return self

    def send(self, uid: str, offset: int, **asked: Any) -> "Story":
        return self._do("send", {"tp": TP, "uid": uid, **asked}, {"offset": offset})

    def poll(
        self, wanted: int, *records: tuple[int, str], f: str = "poll", **answered: Any
    ) -> "Story":
        values = {"hw": 1000, "log_start": 0, "records": [list(each) for each in records]}
        return self._do(f, {"tp": TP, "offset": wanted}, {**values, **answered})

    def final(self, *records: tuple[int, str], **answered: Any) -> "Story":
        return self.poll(0, *records, f="final", **answered)

    def latest(self, offset: int) -> "Story":
        return self._do("list_offsets", {"tp": TP, "at": "latest"}, {"offset": offset})

    def delete(self, before: int) -> "Story":
        return self._do("delete", {"tp": TP, "before": before}, {"log_start": before})

    def probe(self, f: str, **v: Any) -> "Story":
        self.history.record("node", "probe", f, **v)
        return self

    def power_loss(self) -> "Story":
        return self.probe("crash", kind="power")

    def kill(self) -> "Story":
        return self.probe("crash", kind="kill")

    def fsync(self, upto: int) -> "Story":
        return self.probe("fsync", tp=TP, upto=upto)

    def marks(self, log_start: int, lso: int, hw: int, end: int) -> "Story":
        return self.probe("hw", tp=TP, log_start=log_start, lso=lso, hw=hw, end=end)

    def recovered(self, end: int) -> "Story":
        return self.probe("recovered", tp=TP, start=0, end=end)


def good() -> Story:
    """A life with everything in it, and nothing wrong."""
    return (
        Story()
        .send("a", 0, pid=1, seq=0)
        .send("b", 1, pid=1, seq=1)
        .poll(0, (0, "a"), (1, "b"), hw=2)
        .latest(2)
        .marks(0, 2, 2, 2)
        .fsync(2)
        .send("c", 2)
        .poll(2, (2, "c"))
        .latest(3)
        .marks(0, 3, 3, 3)
        .power_loss()
        .recovered(2)
        .marks(0, 2, 2, 2)
        .latest(2)
        .send("d", 2, durable=True)
        .send("b", 1, pid=1, seq=1, retry=True)
        .power_loss()
        .recovered(3)
        .send("e", 3)
        .kill()
        .recovered(4)
        .delete(1)
        .poll(0, (1, "b"), (2, "d"), (3, "e"), log_start=1)
        .final((1, "b"), (2, "d"), (3, "e"), log_start=1)
    )


def invariants(story: Story) -> set[str]:
    return {violation.invariant for violation in check(story.history)}


def test_nothing_is_wrong_with_a_good_history() -> None:
    assert check(good().history) == []


BAD: dict[str, tuple[str, Story]] = {
    "acknowledged, then gone": ("D1", Story().send("a", 0).final()),
    "gone by a mere kill": ("D1", Story().send("a", 0).kill().final()),
    "durable, gone by power loss": ("D1", Story().send("a", 0, durable=True).power_loss().final()),
    "fsynced, gone by power loss": ("D1", Story().send("a", 0).fsync(1).power_loss().final()),
    "log start moved by itself": ("D1", Story().send("a", 0).final(log_start=1)),
    "two records at an offset": ("D2", Story().send("a", 0).poll(0, (0, "b"))),
    "acknowledged twice at an offset": ("D2", Story().send("a", 0).send("b", 0)),
    "a read that changed": ("D3", Story().poll(0, (0, "a")).poll(0, (0, "b"))),
    "a read that changed after a loss it survived": (
        "D3",
        Story().send("a", 0).power_loss().poll(0, (0, "a")).poll(0, (0, "b")),
    ),
    "sent later, lies before": ("D4", Story().send("a", 5).send("b", 4)),
    "left out": ("D5", Story().send("a", 0).send("b", 1).poll(0, (1, "b"))),
    "went back within a poll": ("D5", Story().poll(0, (1, "b"), (0, "a"))),
    "before what was asked": ("D5", Story().poll(3, (2, "a"))),
    "hw fell": ("D6", Story().marks(0, 5, 5, 5).marks(0, 4, 4, 5)),
    "log start fell": ("D6", Story().marks(2, 5, 5, 5).marks(1, 5, 5, 5)),
    "hw fell over a kill": ("D6", Story().marks(0, 5, 5, 5).kill().recovered(5).marks(0, 4, 4, 5)),
    "hw past the end": ("D6", Story().marks(0, 1, 3, 2)),
    "read past the hw": ("D6", Story().poll(0, (0, "a"), hw=0)),
    "latest fell": ("D6", Story().latest(5).latest(4)),
    "latest fell below the fsync": ("D6", Story().latest(5).fsync(3).power_loss().latest(2)),
    "recovered below the fsync": ("D9", Story().fsync(5).power_loss().recovered(4)),
    "recovered short after a kill": ("D9", Story().marks(0, 5, 5, 5).kill().recovered(4)),
    "bad crc served": ("D10", Story().poll(0, bad_crc=1)),
    "twice in the log": ("P1", Story().send("a", 0, pid=1, seq=0).final((0, "a"), (1, "a"))),
    "out of order": (
        "P2",
        Story().send("b", 0, pid=1, seq=1).send("a", 1, pid=1, seq=0).final((0, "b"), (1, "a")),
    ),
    "a retry at another offset": (
        "P3",
        Story().send("a", 0, pid=1, seq=0).send("a", 1, pid=1, seq=0, retry=True),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_wrong_is_found(name: str) -> None:
    invariant, story = BAD[name]
    assert invariant in invariants(story)


FORGIVEN: dict[str, Story] = {
    "unflushed and lost": Story().send("a", 0).poll(0, (0, "a")).power_loss().final(),
    "its offset used again": Story().send("a", 0).power_loss().send("b", 0).final((0, "b")),
    "lower after the loss": Story().send("a", 5).power_loss().send("b", 0).final((0, "b")),
    "latest fell to the fsync": Story().latest(5).fsync(3).power_loss().latest(3),
    "not idempotent, twice": Story().send("a", 0).final((0, "a"), (1, "a")),
    "deleted on demand": Story().send("a", 0).delete(1).final(log_start=1),
    "log start of its checkpoint": Story().marks(2, 5, 5, 5).recovered(5).marks(1, 5, 5, 5),
    "expired": Story().send("a", 0).probe("expired", tp=TP, log_start=1).final(log_start=1),
}


@pytest.mark.parametrize("name", FORGIVEN)
def test_what_no_promise_covers_is_no_violation(name: str) -> None:
    assert check(FORGIVEN[name].history) == []


def test_an_unknown_outcome_is_neither_kept_nor_lost() -> None:
    for records in ([(0, "a")], []):
        story = Story()
        story.history.record("p", "invoke", "send", tp=TP, uid="a")
        story.history.record("p", "info", "send")
        assert check(story.final(*records).history) == []


def test_concurrent_sends_may_land_in_any_order() -> None:
    story = Story()
    for proc, uid in (("x", "a"), ("y", "b")):
        story.history.record(proc, "invoke", "send", tp=TP, uid=uid)
    story.history.record("x", "ok", "send", offset=1)
    story.history.record("y", "ok", "send", offset=0)
    assert check(story.history) == []


def test_a_violation_can_be_raised() -> None:
    error = Violation("D1", "gone").raised()
    assert error.invariant == "D1"
    assert str(error) == "D1: gone"
