"""Tests that every check of groups and copies detects its violation."""

from typing import Any

import pytest

from lograft.simulation.history import History
from tests.chaos.group_checks import check_copies, check_groups
from tests.chaos.topics import Topic
from tests.chaos.verdict import find_missing_duplicates

SOURCE = Topic("s")


def commit(history: History, offset: int, *, type: Any = "ok") -> None:
    history.record("m", "invoke", "commit", group="g", member="m", offsets={"s-0": offset})
    history.record("m", type, "commit")


def offset_fetch(history: History, offset: int) -> None:
    history.record("w", "invoke", "offset_fetch", group="g")
    history.record("w", "ok", "offset_fetch", offsets={"s-0": offset})


def poll(history: History, *offsets: int, is_first: bool = False) -> None:
    arguments = {"tp": "s-0", "offset": offsets[0], "group": "g", "member": "m", "generation": 1}
    history.record("m", "invoke", "poll", **arguments, is_first=is_first)
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


def group_violations(history: History) -> list[str]:
    return [violation.invariant for violation in check_groups(history, ["g"])]


def copy_violations(history: History) -> list[str]:
    return [violation.invariant for violation in check_copies(history, SOURCE)]


def test_committed_offsets_must_not_move_back() -> None:
    history = History()
    commit(history, 3)
    offset_fetch(history, 3)
    poll(history, 3, 4, is_first=True)
    commit(history, 9, type="info")
    offset_fetch(history, 5)
    assert group_violations(history) == []
    offset_fetch(history, 4)
    assert group_violations(history) == ["G1"]


@pytest.mark.parametrize("is_first", [True, False])
def test_member_must_start_at_the_committed_offset(is_first: bool) -> None:
    history = History()
    commit(history, 3)
    poll(history, 2, is_first=is_first)
    assert group_violations(history) == (["G1"] if is_first else [])


def test_late_response_to_an_earlier_fetch_is_valid() -> None:
    history = History()
    history.record("w", "invoke", "offset_fetch", group="g")
    commit(history, 3)
    history.record("w", "ok", "offset_fetch", offsets={"s-0": 0})
    assert group_violations(history) == []


def test_partition_must_have_one_owner_in_a_generation() -> None:
    history = History()
    assigned(history, "a", 1)
    assigned(history, "a", 1)
    assigned(history, "b", 2)
    assert group_violations(history) == []
    assigned(history, "b", 1)
    assert group_violations(history) == ["G2"]


def test_all_records_must_be_processed() -> None:
    history = History()
    poll(history, 0, 1)
    poll(history, 1)
    final(history, "u0", "u1")
    assert group_violations(history) == []
    final(history, "u0", "u1", "u2")
    assert group_violations(history) == ["G5"]


def test_acknowledged_duplicate_must_exist() -> None:
    history = History()
    for uid in ("u0", "u1"):
        history.record(uid, "invoke", "send", tp="s-0", uid=uid)
        history.record(uid, "info", "send", acknowledged=True)
    final(history, "u1")
    assert [violation.message.split()[1] for violation in find_missing_duplicates(history)] == [
        "u0"
    ]


def test_valid_copies_are_accepted() -> None:
    history = History()
    transaction(history, "x.1", "u0", "u1")
    transaction(history, "x.2", "u2", type="info")
    history.record("x", "probe", "aborted", name="x.2")
    transaction(history, "x.3", "u2")
    final(history, "u0", "u1", "u2")
    copies(history, ("u0", "x.1"), ("u1", "x.1"), ("u2", "x.3"))
    assert copy_violations(history) == []


@pytest.mark.parametrize(
    ("copied", "expected"),
    [
        ([("u0", "x.1")], ["T8", "T2"]),
        ([("u0", "x.1"), ("u1", "x.1"), ("u0", "x.3"), ("u1", "x.3")], ["T8"]),
        ([("u0", "x.1"), ("u1", "x.1"), ("u9", "x.3")], ["T8", "T2"]),
        ([("u0", "x.1"), ("u1", "x.1"), ("u0", "x.2")], ["T8", "T1"]),
        ([], ["T8", "T2"]),
    ],
    ids=["partial", "duplicate", "without original", "aborted", "lost"],
)
def test_invalid_copies_are_detected(copied: list[tuple[str, str]], expected: list[str]) -> None:
    history = History()
    transaction(history, "x.1", "u0", "u1")
    transaction(history, "x.2", "u0", type="info")
    history.record("x", "probe", "aborted", name="x.2")
    transaction(history, "x.3", "u0", "u1", type="info")
    final(history, "u0", "u1")
    copies(history, *copied)
    assert copy_violations(history) == expected
