"""Truncation by recovery: an unfinished write, or records that were complete before."""

from collections.abc import Callable

import pytest

from lograft.broker.logs.log_loading import check_nothing_lost
from lograft.model.errors import DiskFailed
from lograft.storage.log import Log
from lograft.testing.memory import MemoryDisk
from tests.unit.storage.logs import NOW_MS, make_batch, open_log


def damaged(change: Callable[[Log], None]) -> Log:
    """Writes two batches, ends the process, changes the file, and starts again."""
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(2):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=NOW_MS)
    change(log)
    return open_log(disk)


def untouched(log: Log) -> None: ...


def torn_write(log: Log) -> None:
    log.active.file.append(bytes(make_batch())[:-1])


def torn_header(log: Log) -> None:
    log.active.file.append(bytes(make_batch())[:20])


def flipped_bit(log: Log) -> None:
    file = log.active.file
    last = file.size - 1
    file.pwrite(bytes([file.pread(1, last)[0] ^ 4]), last)


def flipped_bit_before_a_torn_write(log: Log) -> None:
    flipped_bit(log)
    torn_write(log)


@pytest.mark.parametrize("change", [untouched, torn_write, torn_header])
def test_an_unfinished_write_loses_nothing(change: Callable[[Log], None]) -> None:
    log = damaged(change)
    assert (log.end_offset, log.has_lost_batches) == (2, False)
    check_nothing_lost("data", [log])


@pytest.mark.parametrize("change", [flipped_bit, flipped_bit_before_a_torn_write])
def test_a_batch_that_was_whole_is_lost(change: Callable[[Log], None]) -> None:
    log = damaged(change)
    assert (log.end_offset, log.has_lost_batches) == (1, True)
    with pytest.raises(DiskFailed, match="lost records"):
        check_nothing_lost("data", [log])
