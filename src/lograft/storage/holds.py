"""What a retention hold keeps of the segments that retention would take.

Who holds is not decided here; a hold is an offset, and two bounds that win over it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lograft.model.types import Offset


class OldSegment(NamedTuple):
    """Retention would take it."""

    end_offset: int
    size: int
    #: Older than the longest that a hold may keep it.
    is_outlived: bool


def count_unheld(old: Sequence[OldSegment], *, held: Offset, bytes_max: int) -> int:
    """How many of these, oldest first, go although records from `held` on are held: those below
    it, those that have outlived every hold, and as many as it takes for no more than `bytes_max`
    to be kept (-1: no limit)."""
    kept_bytes = sum(one.size for one in old if one.end_offset > held)
    for count, one in enumerate(old):
        if one.end_offset <= held:
            continue
        if not one.is_outlived and not 0 <= bytes_max < kept_bytes:
            return count
        kept_bytes -= one.size
    return len(old)
