"""`lograft groups reset` and `undo`: parses the options and prints the plan."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from lograft.cli.output import count, table
from lograft.client.admin import ResetPlan
from lograft.model.errors import InvalidInput
from lograft.model.types import ResetAction

_ISO_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_SHORT_DURATION: Final = re.compile(
    r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse_scope(texts: Iterable[str]) -> dict[str, set[int] | None]:
    """Parses `T` or `T:0,2` into partitions by topic; None stands for all partitions."""
    scope: dict[str, set[int] | None] = {}
    for text in texts:
        topic, colon, indexes = text.partition(":")
        if not topic or (colon and not all(n.strip().isdigit() for n in indexes.split(","))):
            raise InvalidInput(
                f"invalid partitions {text}: write TOPIC, or TOPIC:P,… for some of its partitions"
            )
        if not colon:
            scope[topic] = None
            continue
        partitions = scope.setdefault(topic, set())
        if partitions is not None:
            partitions.update(int(index) for index in indexes.split(","))
    return scope


def parse_duration_ms(text: str) -> int:
    found = _ISO_DURATION.fullmatch(text) or _SHORT_DURATION.fullmatch(text)
    parts = {unit: value for unit, value in (found.groupdict() if found else {}).items() if value}
    if not parts:
        raise InvalidInput(f"invalid duration {text}: write it as 1h30m or PT1H30M")
    return round(1000 * sum(_SECONDS[unit] * float(value) for unit, value in parts.items()))


def parse_datetime_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"invalid time {text}: write it as 2026-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def plan_lines(plan: ResetPlan, *, executed: bool) -> list[str]:
    lines = table(
        ["PARTITION", "BEFORE", "AFTER", "DIFFERENCE"],
        (
            (
                f"{move.topic}-{move.partition}",
                _offset_text(move.before),
                _offset_text(move.after),
                ""
                if move.before is None or move.after is None
                else f"{move.after - move.before:+d}",
            )
            for move in plan.moves
        ),
    )
    members = count(plan.members, "member")
    lines.append("")
    if executed:
        if plan.action is ResetAction.RESET:
            lines.append(f"Reset the offsets of group {plan.group}.")
        else:
            lines.append(f"Restored the previous offsets of group {plan.group}.")
        if plan.members:
            lines.append(f"Its {members} must rejoin and will continue at these offsets.")
        if plan.action is ResetAction.RESET:
            lines.append(f"`lograft groups undo {plan.group}` restores the previous offsets.")
    else:
        lines.append("Dry run: nothing was changed. Use --execute to apply the changes.")
        if plan.members:
            lines.append(
                f"The {members} of group {plan.group} will have to rejoin, and will continue at the"
                " new offsets."
            )
    return lines


def _offset_text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
