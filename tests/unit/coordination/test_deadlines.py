from hypothesis import given
from hypothesis import strategies as st

from lograft.coordination.deadlines import OUTDATED_MAX, Deadline, Deadlines


def names_due(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    names = []
    while (due := deadlines.take_due(now_ms)) is not None:
        names.append(due.action(now_ms))
    return names


def test_deadlines_come_in_order_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for name, at_ms in (("late", 30), ("first", 10), ("second", 10)):
        deadlines.add(at_ms, lambda now_ms, name=name: f"{name}@{now_ms}")  # type: ignore[misc]
    assert deadlines.next_ms() == 10
    assert names_due(deadlines, 9) == []
    assert names_due(deadlines, 20) == ["first@20", "second@20"]
    assert deadlines.next_ms() == 30
    assert len(deadlines) == 1


def test_putting_one_off_a_thousand_times_keeps_the_heap_small() -> None:
    deadlines: Deadlines[str] = Deadlines()
    member = deadlines.add(10, lambda _: "expired")
    for at_ms in range(11, 1011):
        deadlines.move(member, at_ms)
    assert len(deadlines._heap) == 1
    assert names_due(deadlines, 1009) == []
    assert names_due(deadlines, 1010) == ["expired"]


def test_hastening_one_many_times_is_bounded() -> None:
    deadlines: Deadlines[str] = Deadlines()
    member = deadlines.add(10_000, lambda _: "expired")
    for at_ms in range(9_999, 5_000, -1):
        deadlines.move(member, at_ms)
    assert len(deadlines._heap) <= 2 + OUTDATED_MAX
    assert names_due(deadlines, 5_001) == ["expired"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["move", "cancel", "pass"]), st.integers(0, 5), st.integers(1, 50)
        )
    )
)
def test_as_a_plain_table_of_times(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    handles: dict[int, Deadline[int]] = {}
    expected: dict[int, int] = {}
    now_ms = 0
    for what, name, amount in steps:
        if what == "cancel":
            deadlines.cancel(handles.get(name))
            expected.pop(name, None)
        elif what == "move":
            at_ms = now_ms + amount
            if name in handles:
                deadlines.move(handles[name], at_ms)
            else:
                handles[name] = deadlines.add(at_ms, lambda _, name=name: name)  # type: ignore[misc]
            expected[name] = at_ms
        else:
            now_ms += amount
            due = set()
            while (taken := deadlines.take_due(now_ms)) is not None:
                due.add(taken.action(now_ms))
            assert due == {each for each, at_ms in expected.items() if at_ms <= now_ms}
            expected = {each: at_ms for each, at_ms in expected.items() if at_ms > now_ms}
        assert len(deadlines) == len(expected)
        wake_ms = deadlines.next_ms()
        if expected:
            assert wake_ms is not None
            assert wake_ms <= min(expected.values())
        else:
            assert wake_ms is None
