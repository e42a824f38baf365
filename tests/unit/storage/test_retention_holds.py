"""The segments that a hold keeps, and the limits that take precedence."""

import pytest

from lograft.model.types import Offset
from lograft.storage.log import Log
from lograft.storage.retention_holds import OldSegment, count_deletable
from lograft.storage.types import FixedLogConfig
from lograft.testing.memory import MemoryDisk
from tests.unit.storage.logs import NOW_MS, make_batch, open_log

UNLIMITED = -1


def segments(*, outlived: int = 0) -> list[OldSegment]:
    """Three segments of ten records and a hundred bytes each; `outlived` of them are older than any
    hold may keep."""
    return [OldSegment(10 * (i + 1), 100, i < outlived) for i in range(3)]


@pytest.mark.parametrize(
    ("held", "count"),
    [(0, 0), (1, 0), (9, 0), (10, 1), (11, 1), (29, 2), (30, 3), (99, 3)],
)
def test_what_lies_below_the_hold_goes(held: int, count: int) -> None:
    assert count_deletable(segments(), held=Offset(held), bytes_max=UNLIMITED) == count


@pytest.mark.parametrize("outlived", range(4))
def test_what_has_outlived_the_longest_hold_goes(outlived: int) -> None:
    old = segments(outlived=outlived)
    assert count_deletable(old, held=Offset(0), bytes_max=UNLIMITED) == outlived


@pytest.mark.parametrize(
    ("bytes_max", "count"),
    [(UNLIMITED, 0), (300, 0), (299, 1), (200, 1), (100, 2), (99, 3), (0, 3)],
)
def test_no_more_is_kept_than_is_allowed(bytes_max: int, count: int) -> None:
    assert count_deletable(segments(), held=Offset(0), bytes_max=bytes_max) == count


def test_only_what_is_held_counts_against_the_limit() -> None:
    assert count_deletable(segments(), held=Offset(10), bytes_max=200) == 1


# ── in a log ─────────────────────────────────────────────────────────────────────────────────

DAY_MS = 86_400_000
CONFIG = FixedLogConfig(segment_bytes=500, retention_ms=1000, retention_hold_max_ms=DAY_MS)


def filled(config: FixedLogConfig, count: int = 200) -> Log:
    log = open_log(MemoryDisk(), config)
    for number in range(count):
        log.append_as_leader(make_batch([b"value-%03d" % number]), leader_epoch=1, now_ms=NOW_MS)
    return log


def retain(log: Log, *, held: int | None, age_ms: int) -> None:
    """Until no more can be deleted."""
    while True:
        removal = log.plan_removal(
            NOW_MS + age_ms, log.end_offset, held=None if held is None else Offset(held)
        )
        if removal is None:
            return
        removal.run()
        log.finish_removal(removal)


def test_a_hold_keeps_the_segment_of_its_offset_and_what_follows() -> None:
    log = filled(CONFIG)
    retain(log, held=100, age_ms=2000)
    assert 90 < log.log_start_offset <= 100
    assert log.log_start_offset == log.segments[0].base_offset
    retain(log, held=None, age_ms=2000)
    assert log.log_start_offset == log.end_offset, "it expired, and retention takes its way"


def test_a_hold_ends_with_its_longest_time() -> None:
    log = filled(CONFIG)
    retain(log, held=0, age_ms=1000 + DAY_MS)
    assert log.log_start_offset == 0
    retain(log, held=0, age_ms=1001 + DAY_MS)
    assert log.log_start_offset == log.end_offset


def test_a_hold_keeps_no_more_bytes_than_it_may_however_small_the_segments_are() -> None:
    log = filled(
        FixedLogConfig(segment_bytes=100, retention_ms=1000, retention_hold_max_bytes=2000)
    )
    assert len(log.segments) > 128, "more than one call deletes"
    retain(log, held=0, age_ms=2000)
    assert 1800 < log.size_bytes <= 2000


def test_a_hold_works_against_retention_by_size_too() -> None:
    config = FixedLogConfig(segment_bytes=500, retention_ms=-1, retention_bytes=1000)
    log = filled(config)
    retain(log, held=50, age_ms=2000)
    assert 40 < log.log_start_offset <= 50
    retain(log, held=50, age_ms=config.retention_hold_max_ms + 1)
    assert log.size_bytes <= 1500


def test_what_an_administrator_deletes_is_gone_whoever_holds_it() -> None:
    log = filled(CONFIG)
    log.advance_start(Offset(100))
    retain(log, held=0, age_ms=2000)
    assert log.log_start_offset == 100
    assert 90 < log.segments[0].base_offset <= 100
