import pytest

from lograft.model.patterns import PATTERN_LENGTH_MAX, InvalidPattern, compile_pattern


def test_whole_text_must_match() -> None:
    matches = compile_pattern("orders-.*|bills").matches
    assert matches("orders-1")
    assert matches("bills")
    assert not matches("my-orders-1")


def test_long_list_of_names_is_accepted() -> None:
    names = [f"{index * 7919 % 10_007:05}-orders-of-customers" for index in range(350)]
    pattern = "|".join(names)
    assert len(pattern) < PATTERN_LENGTH_MAX
    assert all(map(compile_pattern(pattern).matches, names))


@pytest.mark.parametrize(
    "pattern",
    ["(", r"(a)\1", "a(?=b)", "x" * (PATTERN_LENGTH_MAX + 1), r"(\pL?){300}q", "(.{0,40}x){99}"],
)
def test_invalid_and_expensive_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(pattern)
