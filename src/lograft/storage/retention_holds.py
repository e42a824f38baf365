"""Which segments a retention hold keeps although retention would delete them.

This module does not know which group holds the records: a hold is an offset and two limits that
override it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lograft.model.types import Offset


class OldSegment(NamedTuple):
    """A segment that retention would delete."""

    end_offset: int
    size: int
    #: It is older than the maximum time that a hold may keep it.
    is_past_hold_limit: bool


def count_deletable(old: Sequence[OldSegment], *, held: Offset, bytes_max: int) -> int:
    """Returns how many of these segments, oldest first, can be deleted although records from `held`
    on are held: segments below `held`, segments older than a hold may keep, and as many more as
    needed to keep no more than `bytes_max` bytes (-1: no limit)."""
    kept_bytes = sum(segment.size for segment in old if segment.end_offset > held)
    for count, segment in enumerate(old):
        if segment.end_offset <= held:
            continue
        if not segment.is_past_hold_limit and not 0 <= bytes_max < kept_bytes:
            return count
        kept_bytes -= segment.size
    return len(old)
