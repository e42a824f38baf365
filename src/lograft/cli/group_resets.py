"""`lograft groups reset|undo` in words: what the options mean, and what a plan does."""

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
    """`T` or `T:0,2`; None: all partitions of the topic."""
    scope: dict[str, set[int] | None] = {}
    for text in texts:
        topic, colon, indexes = text.partition(":")
        if not topic or (colon and not all(n.strip().isdigit() for n in indexes.split(","))):
            raise InvalidInput(f"{text}: write a topic, or some of its partitions as in orders:0,2")
        if not colon:
            scope[topic] = None
            continue
        known = scope.setdefault(topic, set())
        if known is not None:
            known.update(int(index) for index in indexes.split(","))
    return scope


def parse_duration_ms(text: str) -> int:
    found = _ISO_DURATION.fullmatch(text) or _SHORT_DURATION.fullmatch(text)
    parts = {unit: value for unit, value in (found.groupdict() if found else {}).items() if value}
    if not parts:
        raise InvalidInput(f"{text} is no duration: write it as in 1h30m or PT1H30M")
    return round(1000 * sum(_SECONDS[unit] * float(value) for unit, value in parts.items()))


def parse_datetime_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text} is no time: write it as in 2026-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def plan_lines(plan: ResetPlan, *, executed: bool) -> list[str]:
    lines = table(
        ["PARTITION", "BEFORE", "AFTER", "DIFFERENCE"],
        (
            (
                f"{move.topic}-{move.partition}",
                _said(move.before),
                _said(move.after),
                ""
                if move.before is None or move.after is None
                else f"{move.after - move.before:+d}",
            )
            for move in plan.moves
        ),
    )
    who = count(plan.members, "member")
    lines.append("")
    if executed:
        verb = "reset" if plan.action is ResetAction.RESET else "back where they were"
        lines.append(f"The offsets of group {plan.group} are {verb}.")
        if plan.members:
            lines.append(f"Its {who} must join again and will begin there.")
        if plan.action is ResetAction.RESET:
            lines.append(f"`lograft groups undo {plan.group}` takes it back.")
    else:
        lines.append("Nothing is changed yet: --execute does it, in one step.")
        if plan.members:
            lines.append(f"The {who} of group {plan.group} will join again and begin there.")
    return lines


def _said(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
