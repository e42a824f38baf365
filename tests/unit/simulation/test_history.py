import pytest

from lograft.simulation.history import History


def test_round_trip_through_json_lines() -> None:
    history = History(lambda: 5)
    history.record("p1", "invoke", "send", tp="a-0", uid="p1-1")
    history.record("p1", "ok", "send", offset=3)
    history.record("node", "probe", "crash", kind="power")
    text = history.to_jsonl()
    assert text.count("\n") == 3
    again = History.from_jsonl(text.splitlines())
    assert again.events == history.events
    assert again.to_jsonl() == text


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="maybe"):
        History.from_jsonl(['{"t":1,"proc":"p","type":"maybe","f":"send","v":{}}'])


def test_operations_pair_and_what_never_ends_is_info() -> None:
    history = History()
    history.record("p1", "invoke", "send", uid="a")
    history.record("p2", "invoke", "poll", offset=0)
    history.record("p2", "ok", "poll", records=[])
    history.record("p1", "fail", "send", error="no")
    history.record("p1", "invoke", "send", uid="b")
    found = [(each.proc, each.type, each.asked) for each in history.operations()]
    assert found == [
        ("p1", "fail", {"uid": "a"}),
        ("p2", "ok", {"offset": 0}),
        ("p1", "info", {"uid": "b"}),
    ]
    assert [each.f for each in history.operations("poll")] == ["poll"]


def test_one_thing_at_a_time() -> None:
    history = History()
    history.record("p1", "invoke", "send")
    history.record("p1", "invoke", "send")
    with pytest.raises(ValueError, match="pending"):
        history.operations()
    other = History()
    other.record("p1", "ok", "send")
    with pytest.raises(ValueError, match="did not invoke"):
        other.operations()
