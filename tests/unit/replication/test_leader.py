from hypothesis import given
from hypothesis import strategies as st

from lograft.model.types import Offset
from lograft.replication.leader import SoleReplica


def test_without_flush_all_that_is_written_is_committed() -> None:
    rule = SoleReplica(end=Offset(5), durable=Offset(2), durable_only=False)
    assert rule.high_watermark == 5
    assert rule.on_appended(Offset(8))
    assert rule.high_watermark == 8
    assert not rule.on_durable(Offset(8))


def test_with_flush_only_what_is_durable_is_committed() -> None:
    rule = SoleReplica(end=Offset(5), durable=Offset(2), durable_only=True)
    assert rule.high_watermark == 2
    assert not rule.on_appended(Offset(8))
    assert rule.on_durable(Offset(7))
    assert rule.high_watermark == 7


def test_the_setting_changes_without_a_fall() -> None:
    rule = SoleReplica(end=Offset(5), durable=Offset(2), durable_only=False)
    assert not rule.require_durable(True, end=Offset(5))
    assert rule.high_watermark == 5
    rule.on_appended(Offset(9))
    assert rule.require_durable(False, end=Offset(9))
    assert rule.high_watermark == 9


@given(st.lists(st.tuples(st.sampled_from(["append", "flush", "switch"]), st.integers(1, 9))))
def test_the_watermark_never_falls_and_never_passes_the_end(steps: list[tuple[str, int]]) -> None:
    end = durable = 0
    rule = SoleReplica(end=Offset(0), durable=Offset(0), durable_only=False)
    for kind, number in steps:
        before = rule.high_watermark
        if kind == "append":
            end += number
            moved = rule.on_appended(Offset(end))
        elif kind == "flush":
            durable = max(durable, end - number)
            moved = rule.on_durable(Offset(durable))
        else:
            moved = rule.require_durable(number % 2 == 0, end=Offset(end))
        assert before <= rule.high_watermark <= end
        assert moved == (rule.high_watermark > before)
