"""Where a consumer begins that has no position, or one that the log does not have."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

#: As timestamps of a ListOffsets request.
LATEST: Final = -1
EARLIEST: Final = -2

_BY_DURATION: Final = "by_duration:"
#: What Java's Duration reads, without signs: PnDTnHnMn.nS.
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


class ResetKind(Enum):
    LATEST = "latest"
    EARLIEST = "earliest"
    #: So long before now.
    DURATION = "by_duration"
    #: The program is told, and decides.
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> "ResetPolicy":
        """Raises ValueError."""
        if text.startswith(_BY_DURATION):
            return cls(ResetKind.DURATION, duration_ms(text.removeprefix(_BY_DURATION)))
        kind = ResetKind(text)
        if kind is ResetKind.DURATION:
            raise ValueError("it names no duration")
        return cls(kind)

    def timestamp(self, now_ms: int) -> int | None:
        """What to ask ListOffsets for; None: nobody is asked."""
        return {
            ResetKind.LATEST: LATEST,
            ResetKind.EARLIEST: EARLIEST,
            ResetKind.DURATION: max(0, now_ms - self.duration_ms),
        }.get(self.kind)


def duration_ms(text: str) -> int:
    """Of an ISO 8601 duration such as P3D or PT1H30M; raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration such as P3D or PT1H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def problem_with_policy(value: Any) -> str | None:
    try:
        ResetPolicy.parse(value)
    except ValueError:
        return "must be latest, earliest, none or by_duration: with a duration such as P3D or PT1H"
    return None
