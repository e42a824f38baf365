"""Output of `lograft topics holds`: the groups that retain records beyond retention.ms."""

from collections.abc import Sequence
from datetime import UTC, datetime

from lograft.cli.output import number, table
from lograft.client.admin import RetentionHold


def holds_lines(holds: Sequence[RetentionHold]) -> list[str]:
    if not holds:
        return ["No retention holds."]
    return table(
        ["PARTITION", "GROUP", "HELD FROM", "LOG START", "LOG END", "KEPT", "UNTIL (UTC)"],
        (
            (
                f"{hold.topic}-{hold.partition}",
                hold.group,
                number(hold.offset),
                number(hold.log_start),
                number(hold.end_offset),
                number(hold.records_kept),
                _format_time(hold.until_ms),
            )
            for hold in holds
        ),
    )


def _format_time(time_ms: int) -> str:
    """Formats a time of a commit, which may be outside the range of datetime."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{time_ms} ms"
