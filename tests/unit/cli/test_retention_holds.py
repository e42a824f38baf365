from lograft.cli.retention_holds import holds_lines
from lograft.client.admin import RetentionHold


def test_holds_are_shown_with_what_they_keep() -> None:
    holds = [
        RetentionHold("orders", 0, "lake", 20, 1_700_000_000_000, 18, 40, 5),
        RetentionHold("orders", 11, "lake", 0, 10**18, 0, 0, None),
    ]
    assert holds_lines(holds) == [
        "PARTITION  GROUP  HELD FROM  LOG START  END  KEPT  UNTIL (UTC)",
        "orders-0   lake   20         18         40   5     2023-11-14 22:13:20",
        "orders-11  lake   0          0          0    -     1000000000000000000 ms",
    ]
    assert holds_lines([]) == ["Nothing is held."]
