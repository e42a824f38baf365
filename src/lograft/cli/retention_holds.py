"""`lograft topics holds`: who keeps records beyond their retention."""

from collections.abc import Sequence
from datetime import UTC, datetime

from lograft.cli.output import number, table
from lograft.client.admin import RetentionHold


def holds_lines(holds: Sequence[RetentionHold]) -> list[str]:
    if not holds:
        return ["Nothing is held."]
    return table(
        ["PARTITION", "GROUP", "HELD FROM", "LOG START", "END", "KEPT", "UNTIL (UTC)"],
        (
            (
                f"{one.topic}-{one.partition}",
                one.group,
                number(one.offset),
                number(one.log_start),
                number(one.end_offset),
                number(one.records_kept),
                _time(one.until_ms),
            )
            for one in holds
        ),
    )


def _time(time_ms: int) -> str:
    """Whoever commits may name a time that no calendar has."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{time_ms} ms"
