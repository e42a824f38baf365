import pytest

from lograft.model.retention_holds import hold_text, hold_until_ms


@pytest.mark.parametrize(
    ("metadata", "until_ms"),
    [
        (hold_text(1_763_261_234_567), 1_763_261_234_567),
        ("by=billing hold-until=5 more", 5),
        ("hold-until=5\nmore", 5),
        (None, None),
        ("", None),
        ("hold-until=", None),
        ("hold-until=-5", None),
        ("hold-until=5s", None),
        ("no-hold-until=5", None),
        ("hold-until=" + "9" * 20, None),
    ],
)
def test_a_hold_is_a_word_of_the_metadata(metadata: str | None, until_ms: int | None) -> None:
    assert hold_until_ms(metadata) == until_ms
