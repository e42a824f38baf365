"""A log that was closed cleanly and modified before it was opened again."""

import pytest

from lograft.model.types import NO_EPOCH, Offset
from lograft.storage.errors import BatchCorruptBelowRecoveryPoint, LogCorrupt
from lograft.storage.log import Log
from lograft.storage.types import FixedLogConfig
from lograft.testing.memory import MemoryDisk
from tests.unit.storage.logs import DIRECTORY, NOW_MS, make_batch, open_log, read_all

SMALL = FixedLogConfig(segment_bytes=500, index_interval_bytes=100, retention_ms=60_000)
RECORDS = 30


def closed_log(disk: MemoryDisk) -> Log:
    log = open_log(disk, SMALL)
    for number in range(RECORDS):
        log.append_as_leader(make_batch([b"value-%d" % number]), leader_epoch=1, now_ms=NOW_MS)
    log.close(clean=True)
    return log


def test_a_last_segment_that_is_gone_is_damage_not_an_older_end() -> None:
    disk = MemoryDisk()
    disk.unlink(closed_log(disk).active.path)
    with pytest.raises(BatchCorruptBelowRecoveryPoint):
        open_log(disk, SMALL, clean=True, recovery_point=RECORDS)


def test_a_file_cut_between_two_batches_is_damage_too() -> None:
    disk = MemoryDisk()
    active = closed_log(disk).active
    positions = [position for position, _ in active.scan()]
    disk.open(active.path).truncate(positions[-1])
    with pytest.raises(BatchCorruptBelowRecoveryPoint):
        open_log(disk, SMALL, clean=True, recovery_point=RECORDS)


def test_a_batch_that_is_there_twice_is_cut_away() -> None:
    disk = MemoryDisk()
    active = closed_log(disk).active
    *_, (position, _) = active.scan()
    file = disk.open(active.path)
    file.append(file.pread(file.size - position, position))
    log = open_log(disk, SMALL, clean=True, recovery_point=RECORDS)
    assert log.end_offset == RECORDS
    assert [record.offset for record in read_all(log)] == list(range(RECORDS))


def test_a_batch_that_claims_to_be_longer_than_its_file_is_never_promised_to_a_reader() -> None:
    disk = MemoryDisk()
    first = closed_log(disk).segments[0]
    disk.open(first.path).pwrite(b"\x7f", 8)
    log = open_log(disk, SMALL, clean=True, recovery_point=RECORDS)
    with pytest.raises(LogCorrupt):
        log.read(0, bytes_max=100)


def test_retention_reports_the_bytes_of_segments_that_were_not_read_since_the_start() -> None:
    disk = MemoryDisk()
    closed = closed_log(disk)
    deleted = closed.segments[:2]
    sizes = [segment.size for segment in deleted]
    log = open_log(disk, SMALL, clean=True, recovery_point=RECORDS)
    log.advance_start(Offset(closed.segments[2].base_offset))
    removal = log.plan_removal(NOW_MS, Offset(RECORDS))
    assert removal is not None
    assert len(removal) == 2
    removal.run()
    assert removal.size_bytes == sum(sizes)


def test_no_segment_is_deleted_because_its_time_index_is_damaged() -> None:
    disk = MemoryDisk()
    log = closed_log(disk)
    segments = len(log.segments)
    for segment in log.segments:
        index = disk.open(segment.time_index.path)
        for position in range(0, index.size, 12):
            index.pwrite(bytes(8), position)  # with timestamps of 1970
    log = open_log(disk, SMALL, clean=True, recovery_point=RECORDS)
    assert log.delete_old_segments(NOW_MS + 1, Offset(RECORDS)) == 0
    assert log.delete_old_segments(NOW_MS + 60_001, Offset(RECORDS)) == segments


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_without_log_files_is_an_empty_log_as_in_kafka(clean: bool) -> None:
    """Not at the recovery point: a follower would appear to have the records below it."""
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(3):
        log.append_as_leader(make_batch(), leader_epoch=2, now_ms=NOW_MS)
    log.close(clean=True)
    disk.unlink(log.active.path)
    log = open_log(disk, clean=clean, recovery_point=3, log_start=1)
    assert (log.log_start_offset, log.end_offset, log.durable_offset) == (1, 1, 1)
    assert log.latest_epoch == NO_EPOCH
    assert len(log.producers) == 0
    assert [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")] == [
        "00000000000000000001.log"
    ]
