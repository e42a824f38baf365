"""Every check of groups and copies, shown a violation and its absence."""

from typing import Any

import pytest

from lograft.simulation.history import History
from tests.chaos.group_checks import check_copies, check_groups
from tests.chaos.topics import Topic
from tests.chaos.verdict import missing_repeats

SOURCE = Topic("s")


def commit(history: History, offset: int, *, type: Any = "ok") -> None:
    history.record("m", "invoke", "commit", group="g", member="m", offsets={"s-0": offset})
    history.record("m", type, "commit")


def offset_fetch(history: History, offset: int) -> None:
    history.record("w", "invoke", "offset_fetch", group="g")
    history.record("w", "ok", "offset_fetch", offsets={"s-0": offset})


def poll(history: History, *offsets: int, is_first: bool = False) -> None:
    asked = {"tp": "s-0", "offset": offsets[0], "group": "g", "member": "m", "generation": 1}
    history.record("m", "invoke", "poll", **asked, is_first=is_first)
    history.record("m", "ok", "poll", records=[(offset, f"u{offset}") for offset in offsets])


def assigned(history: History, member: str, generation: int) -> None:
    history.record(
        member, "probe", "assigned",
        group="g", member=member, generation=generation, partitions=["s-0"],
    )  # fmt: skip


def final(history: History, *uids: str) -> None:
    history.record("f", "invoke", "final", tp="s-0", offset=0)
    history.record("f", "ok", "final", records=list(enumerate(uids)))


def copies(history: History, *copied: tuple[str, str]) -> None:
    records = [(offset, uid, name) for offset, (uid, name) in enumerate(copied)]
    history.record("f", "invoke", "copies", tp="c-0")
    history.record("f", "ok", "copies", records=records)


def transaction(history: History, name: str, *uids: str, type: Any = "ok") -> None:
    history.record("x", "invoke", "transaction", name=name, uids=list(uids))
    history.record("x", type, "transaction")


def of_groups(history: History) -> list[str]:
    return [found.invariant for found in check_groups(history, ["g"])]


def of_copies(history: History) -> list[str]:
    return [found.invariant for found in check_copies(history, SOURCE)]


def test_positions() -> None:
    history = History()
    commit(history, 3)
    offset_fetch(history, 3)
    poll(history, 3, 4, is_first=True)
    commit(history, 9, type="info")
    offset_fetch(history, 5)
    assert of_groups(history) == []
    offset_fetch(history, 4)
    assert of_groups(history) == ["G1"]


@pytest.mark.parametrize("is_first", [True, False])
def test_where_a_member_begins(is_first: bool) -> None:
    history = History()
    commit(history, 3)
    poll(history, 2, is_first=is_first)
    assert of_groups(history) == (["G1"] if is_first else [])


def test_an_answer_to_an_older_question_is_no_step_back() -> None:
    history = History()
    history.record("w", "invoke", "offset_fetch", group="g")
    commit(history, 3)
    history.record("w", "ok", "offset_fetch", offsets={"s-0": 0})
    assert of_groups(history) == []


def test_owners() -> None:
    history = History()
    assigned(history, "a", 1)
    assigned(history, "a", 1)
    assigned(history, "b", 2)
    assert of_groups(history) == []
    assigned(history, "b", 1)
    assert of_groups(history) == ["G2"]


def test_everything_is_processed() -> None:
    history = History()
    poll(history, 0, 1)
    poll(history, 1)
    final(history, "u0", "u1")
    assert of_groups(history) == []
    final(history, "u0", "u1", "u2")
    assert of_groups(history) == ["G5"]


def test_a_repeat_that_was_acknowledged_is_there() -> None:
    history = History()
    for uid in ("u0", "u1"):
        history.record(uid, "invoke", "send", tp="s-0", uid=uid)
        history.record(uid, "info", "send", acknowledged=True)
    final(history, "u1")
    assert [found.message.split()[1] for found in missing_repeats(history)] == ["u0"]


def test_copies() -> None:
    history = History()
    transaction(history, "x.1", "u0", "u1")
    transaction(history, "x.2", "u2", type="info")
    history.record("x", "probe", "aborted", name="x.2")
    transaction(history, "x.3", "u2")
    final(history, "u0", "u1", "u2")
    copies(history, ("u0", "x.1"), ("u1", "x.1"), ("u2", "x.3"))
    assert of_copies(history) == []


@pytest.mark.parametrize(
    ("copied", "expected"),
    [
        ([("u0", "x.1")], ["T8", "T2"]),
        ([("u0", "x.1"), ("u1", "x.1"), ("u0", "x.3"), ("u1", "x.3")], ["T8"]),
        ([("u0", "x.1"), ("u1", "x.1"), ("u9", "x.3")], ["T8", "T2"]),
        ([("u0", "x.1"), ("u1", "x.1"), ("u0", "x.2")], ["T8", "T1"]),
        ([], ["T8", "T2"]),
    ],
    ids=["torn", "twice", "of nothing", "aborted", "lost"],
)
def test_wrong_copies(copied: list[tuple[str, str]], expected: list[str]) -> None:
    history = History()
    transaction(history, "x.1", "u0", "u1")
    transaction(history, "x.2", "u0", type="info")
    history.record("x", "probe", "aborted", name="x.2")
    transaction(history, "x.3", "u0", "u1", type="info")
    final(history, "u0", "u1")
    copies(history, *copied)
    assert of_copies(history) == expected
