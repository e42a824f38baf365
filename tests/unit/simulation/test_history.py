"""Tests of histories and their operations."""

import pytest

from lograft.simulation.history import History


def test_history_survives_a_round_trip_through_json_lines() -> None:
    history = History(lambda: 5)
    history.record("p1", "invoke", "send", tp="a-0", uid="p1-1")
    history.record("p1", "ok", "send", offset=3)
    history.record("node", "probe", "crash", kind="power")
    text = history.to_jsonl()
    assert text.count("\n") == 3
    parsed = History.from_jsonl(text.splitlines())
    assert parsed.events == history.events
    assert parsed.to_jsonl() == text


def test_unknown_event_type_is_rejected() -> None:
    with pytest.raises(ValueError, match="maybe"):
        History.from_jsonl(['{"t":1,"proc":"p","type":"maybe","f":"send","v":{}}'])


def test_operation_without_completion_has_type_info() -> None:
    history = History()
    history.record("p1", "invoke", "send", uid="a")
    history.record("p2", "invoke", "poll", offset=0)
    history.record("p2", "ok", "poll", records=[])
    history.record("p1", "fail", "send", error="no")
    history.record("p1", "invoke", "send", uid="b")
    found = [(each.proc, each.type, each.arguments) for each in history.operations()]
    assert found == [
        ("p1", "fail", {"uid": "a"}),
        ("p2", "ok", {"offset": 0}),
        ("p1", "info", {"uid": "b"}),
    ]
    assert [each.f for each in history.operations("poll")] == ["poll"]


def test_process_cannot_have_two_pending_operations() -> None:
    history = History()
    history.record("p1", "invoke", "send")
    history.record("p1", "invoke", "send")
    with pytest.raises(ValueError, match="pending"):
        history.operations()
    other = History()
    other.record("p1", "ok", "send")
    with pytest.raises(ValueError, match="did not invoke"):
        other.operations()
