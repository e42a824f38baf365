"""Tests that every checker detects violations, and only those."""

from typing import Any

import pytest

from lograft.simulation.checkers import Violation, check
from lograft.simulation.history import History

TP = "a-0"


class Story:
    """Builds a history from short calls; each call is an operation that completes immediately."""

    def __init__(self) -> None:
        self.history = History()
        self._procs = 0

    def _do(self, f: str, arguments: dict[str, Any], result: dict[str, Any]) -> "Story":
        self._procs += 1
        proc = f"p{self._procs}"
        self.history.record(proc, "invoke", f, **arguments)
        self.history.record(proc, "ok", f, **result)
        return self

    def send(self, uid: str, offset: int, **arguments: Any) -> "Story":
        return self._do("send", {"tp": TP, "uid": uid, **arguments}, {"offset": offset})

    def poll(
        self, offset: int, *records: tuple[int, str], f: str = "poll", **result: Any
    ) -> "Story":
        values = {"hw": 1000, "log_start": 0, "records": [list(each) for each in records]}
        return self._do(f, {"tp": TP, "offset": offset}, {**values, **result})

    def final(self, *records: tuple[int, str], **result: Any) -> "Story":
        return self.poll(0, *records, f="final", **result)

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


def valid_story() -> Story:
    """Returns a history with every kind of event and no violation."""
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


def test_checkers_accept_a_valid_history() -> None:
    assert check(valid_story().history) == []


VIOLATED: dict[str, tuple[str, Story]] = {
    "acknowledged record is lost": ("D1", Story().send("a", 0).final()),
    "record is lost in a kill": ("D1", Story().send("a", 0).kill().final()),
    "durable record is lost in a power loss": (
        "D1",
        Story().send("a", 0, durable=True).power_loss().final(),
    ),
    "fsynced record is lost in a power loss": (
        "D1",
        Story().send("a", 0).fsync(1).power_loss().final(),
    ),
    "log start offset moved without a deletion": ("D1", Story().send("a", 0).final(log_start=1)),
    "read differs from the acknowledged record": ("D2", Story().send("a", 0).poll(0, (0, "b"))),
    "two records acknowledged at an offset": ("D2", Story().send("a", 0).send("b", 0)),
    "second read differs": ("D3", Story().poll(0, (0, "a")).poll(0, (0, "b"))),
    "second read differs after a power loss": (
        "D3",
        Story().send("a", 0).power_loss().poll(0, (0, "a")).poll(0, (0, "b")),
    ),
    "last acknowledged value of a key is compacted away": (
        "D11",
        Story().send("a", 0, key="k1").send("b", 1, key="k2").final((1, "b")),
    ),
    "record sent later has the lower offset": ("D4", Story().send("a", 5).send("b", 4)),
    "poll skips a record": ("D5", Story().send("a", 0).send("b", 1).poll(0, (1, "b"))),
    "offsets decrease within a poll": ("D5", Story().poll(0, (1, "b"), (0, "a"))),
    "poll returns a lower offset than requested": ("D5", Story().poll(3, (2, "a"))),
    "high watermark moves back": ("D6", Story().marks(0, 5, 5, 5).marks(0, 4, 4, 5)),
    "log start offset moves back": ("D6", Story().marks(2, 5, 5, 5).marks(1, 5, 5, 5)),
    "high watermark moves back in a kill": (
        "D6",
        Story().marks(0, 5, 5, 5).kill().recovered(5).marks(0, 4, 4, 5),
    ),
    "high watermark above the log end": ("D6", Story().marks(0, 1, 3, 2)),
    "read above the high watermark": ("D6", Story().poll(0, (0, "a"), hw=0)),
    "latest offset moves back": ("D6", Story().latest(5).latest(4)),
    "latest offset moves below the fsynced offset": (
        "D6",
        Story().latest(5).fsync(3).power_loss().latest(2),
    ),
    "recovered below the fsynced offset": ("D9", Story().fsync(5).power_loss().recovered(4)),
    "record not recovered after a kill": ("D9", Story().marks(0, 5, 5, 5).kill().recovered(4)),
    "batch with a bad CRC returned": ("D10", Story().poll(0, bad_crc=1)),
    "duplicate in the log": ("P1", Story().send("a", 0, pid=1, seq=0).final((0, "a"), (1, "a"))),
    "records out of order": (
        "P2",
        Story().send("b", 0, pid=1, seq=1).send("a", 1, pid=1, seq=0).final((0, "b"), (1, "a")),
    ),
    "retry acknowledged at another offset": (
        "P3",
        Story().send("a", 0, pid=1, seq=0).send("a", 1, pid=1, seq=0, retry=True),
    ),
}


@pytest.mark.parametrize("name", VIOLATED)
def test_checker_detects_the_violation(name: str) -> None:
    invariant, story = VIOLATED[name]
    assert invariant in invariants(story)


ALLOWED: dict[str, Story] = {
    "unflushed record is lost": Story().send("a", 0).poll(0, (0, "a")).power_loss().final(),
    "offset of a lost record is reused": Story()
    .send("a", 0)
    .power_loss()
    .send("b", 0)
    .final((0, "b")),
    "lower offset after a power loss": Story()
    .send("a", 5)
    .power_loss()
    .send("b", 0)
    .final((0, "b")),
    "latest offset moves back to the fsynced offset": Story()
    .latest(5)
    .fsync(3)
    .power_loss()
    .latest(3),
    "duplicate without idempotence": Story().send("a", 0).final((0, "a"), (1, "a")),
    "record was deleted on request": Story().send("a", 0).delete(1).final(log_start=1),
    "log start offset of the checkpoint": Story().marks(2, 5, 5, 5).recovered(5).marks(1, 5, 5, 5),
    "record expired": Story().send("a", 0).probe("expired", tp=TP, log_start=1).final(log_start=1),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_checkers_accept_losses_without_a_guarantee(name: str) -> None:
    assert check(ALLOWED[name].history) == []


def test_record_with_unknown_outcome_may_exist_or_not() -> None:
    for records in ([(0, "a")], []):
        story = Story()
        story.history.record("p", "invoke", "send", tp=TP, uid="a")
        story.history.record("p", "info", "send")
        assert check(story.final(*records).history) == []


def test_later_record_of_a_key_may_replace_the_acknowledged_one() -> None:
    story = Story().send("a", 0, key="k1").send("b", 1, key="k2")
    story.history.record("slow", "invoke", "send", tp=TP, uid="c", key="k1")
    assert invariants(story.final((1, "b"), (2, "c"))) == set()


def test_concurrent_sends_may_have_any_order() -> None:
    story = Story()
    for proc, uid in (("x", "a"), ("y", "b")):
        story.history.record(proc, "invoke", "send", tp=TP, uid=uid)
    story.history.record("x", "ok", "send", offset=1)
    story.history.record("y", "ok", "send", offset=0)
    assert check(story.history) == []


def test_violation_becomes_an_exception() -> None:
    error = Violation("D1", "gone").to_exception()
    assert error.invariant == "D1"
    assert str(error) == "D1: gone"
