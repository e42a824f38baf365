import pytest

from lograft.model.retention_holds import format_hold, parse_hold


@pytest.mark.parametrize(
    ("metadata", "until_ms"),
    [
        (format_hold(1_763_261_234_567), 1_763_261_234_567),
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
def test_hold_is_parsed_from_the_metadata(metadata: str | None, until_ms: int | None) -> None:
    assert parse_hold(metadata) == until_ms
