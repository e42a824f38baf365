from lograft.cli.retention_holds import holds_lines
from lograft.client.admin import RetentionHold


def test_holds_show_the_number_of_records_kept() -> None:
    holds = [
        RetentionHold("orders", 0, "lake", 20, 1_700_000_000_000, 18, 40, 5),
        RetentionHold("orders", 11, "lake", 0, 10**18, 0, 0, None),
    ]
    assert holds_lines(holds) == [
        "PARTITION  GROUP  HELD FROM  LOG START  LOG END  KEPT  UNTIL (UTC)",
        "orders-0   lake   20         18         40       5     2023-11-14 22:13:20",
        "orders-11  lake   0          0          0        -     1000000000000000000 ms",
    ]
    assert holds_lines([]) == ["No retention holds."]
