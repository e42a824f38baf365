import pytest

from lograft.coordination.pattern_matching import STEPS_PER_PIECE, Matched, PatternMatching
from lograft.coordination.types import NeedsLongWork
from lograft.model.patterns import InvalidPattern, compile_pattern

HOSTILE = r"(.*x[x-z.-]{0,20}){30}q"
LONG_NAMES = [f"{number:04}" + "xyz.-" * 48 + "q" for number in range(300)]


def test_a_plain_pattern_is_matched_at_once() -> None:
    names = [f"orders-{number}" for number in range(1000)]
    found = PatternMatching().match_names(["orders-.*", ".*-7"], [*names, "bills"], 5)
    assert found == {"orders-.*": Matched(set(names), 5), ".*-7": Matched({"orders-7"}, 5)}


def test_what_is_no_pattern_is_named() -> None:
    with pytest.raises(InvalidPattern) as refused:
        PatternMatching().match_names(["a", "("], ["a"], 5)
    assert refused.value.pattern == "("


def test_a_costly_one_is_matched_in_pieces() -> None:
    matching = PatternMatching()
    with pytest.raises(NeedsLongWork) as work:
        matching.match_names([HOSTILE, ".*"], LONG_NAMES, 5)
    pieces = sum(1 for _ in work.value.pieces)
    steps = compile_pattern(HOSTILE).steps * sum(map(len, LONG_NAMES))
    # A piece ends with the name that reaches its limit.
    assert pieces >= steps // (
        STEPS_PER_PIECE + compile_pattern(HOSTILE).steps * len(LONG_NAMES[0])
    )
    assert pieces >= 100
    # However fast topics are created, every waiting request completes.
    found = matching.match_names([HOSTILE, ".*"], [*LONG_NAMES, "xq" * 30], 6)
    assert found == {HOSTILE: Matched(set(LONG_NAMES), 5), ".*": Matched(set(LONG_NAMES), 5)}


def test_those_who_wait_for_the_same_share_it() -> None:
    matching = PatternMatching()
    works: list[NeedsLongWork] = []
    for _ in range(2):
        with pytest.raises(NeedsLongWork) as work:
            matching.match_names([HOSTILE], LONG_NAMES, 5)
        works.append(work.value)
    next(works[0].pieces)
    list(works[1].pieces)
    assert len(list(works[0].pieces)) <= 1, "the other one has done it"
    assert matching.match_names([HOSTILE], LONG_NAMES, 5) == {HOSTILE: Matched(set(LONG_NAMES), 5)}


def test_many_patterns_take_long_together() -> None:
    """Each of them is fast."""
    matching = PatternMatching()
    patterns = [f"orders-{number}.*" for number in range(200)]
    names = [f"orders-{number}" for number in range(500)]
    with pytest.raises(NeedsLongWork) as work:
        matching.match_names(patterns, names, 5)
    assert sum(1 for _ in work.value.pieces) >= 150
    found = matching.match_names(patterns, names, 5)
    assert list(found) == patterns
    assert found["orders-49.*"].names == {"orders-49", *names[490:]}


def test_what_is_no_pattern_is_named_however_late_it_is_looked_at() -> None:
    matching = PatternMatching()
    with pytest.raises(NeedsLongWork) as work:
        matching.match_names([HOSTILE, "("], LONG_NAMES, 5)
    list(work.value.pieces)
    with pytest.raises(InvalidPattern) as refused:
        matching.match_names([HOSTILE, "("], LONG_NAMES, 5)
    assert refused.value.pattern == "("


def test_nothing_stays_of_what_nobody_waits_for() -> None:
    matching = PatternMatching()
    try:
        matching.match_names([HOSTILE], LONG_NAMES, 5)
    except NeedsLongWork:
        pass
    else:
        pytest.fail("it was done at once")
    assert not list(matching._searches)
