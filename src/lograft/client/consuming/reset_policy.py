"""The offset at which a consumer starts if it has no position, or if its position is not in the log
(auto.offset.reset)."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

#: Timestamps of a ListOffsets request.
LATEST: Final = -1
EARLIEST: Final = -2

_BY_DURATION: Final = "by_duration:"
#: The format of java.time.Duration, without signs: PnDTnHnMn.nS.
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


class ResetKind(Enum):
    LATEST = "latest"
    EARLIEST = "earliest"
    #: The first record that is at most this old.
    DURATION = "by_duration"
    #: The application gets an error.
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    kind: ResetKind
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> "ResetPolicy":
        """Raises ValueError."""
        if text.startswith(_BY_DURATION):
            return cls(ResetKind.DURATION, parse_duration_ms(text.removeprefix(_BY_DURATION)))
        kind = ResetKind(text)
        if kind is ResetKind.DURATION:
            raise ValueError("the duration is missing")
        return cls(kind)

    def timestamp(self, now_ms: int) -> int | None:
        """Returns the timestamp of the ListOffsets request; None if no request is sent."""
        return {
            ResetKind.LATEST: LATEST,
            ResetKind.EARLIEST: EARLIEST,
            ResetKind.DURATION: max(0, now_ms - self.duration_ms),
        }.get(self.kind)


def parse_duration_ms(text: str) -> int:
    """Parses an ISO 8601 duration such as P3D or PT1H30M. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as P3D or PT1H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def find_policy_error(value: Any) -> str | None:
    try:
        ResetPolicy.parse(value)
    except ValueError:
        return "must be latest, earliest, none or by_duration: with a duration such as P3D or PT1H"
    return None
