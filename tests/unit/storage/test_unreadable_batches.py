"""Batches that plain topics accept without checking their records must not break lookups by
time."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from lograft.model.types import Epoch, Offset
from lograft.storage.log import Log
from lograft.storage.types import TimestampAndOffset
from lograft.storage.validation import PARSED_RECORDS_MAX
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import CRC_START, HEADER_SIZE
from lograft.wire.compression import Codec
from tests.unit.storage.logs import NOW_MS, make_batch, open_log


def garbage() -> memoryview:
    batch = bytearray(make_batch(timestamp=NOW_MS + 5))
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)
    return sealed(batch)


def multitude() -> memoryview:
    """Its record count is higher than that of its records, which is never detected."""
    batch = bytearray(make_batch(timestamp=NOW_MS + 5, compression=Codec.ZSTD))
    struct.pack_into(">i", batch, 23, PARSED_RECORDS_MAX)
    struct.pack_into(">i", batch, 57, PARSED_RECORDS_MAX + 1)
    return sealed(batch)


def sealed(batch: bytearray) -> memoryview:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    return memoryview(batch)


def at(timestamp: int, offset: int) -> TimestampAndOffset:
    return TimestampAndOffset(timestamp, Offset(offset), Epoch(3))


@pytest.fixture
def log() -> Log:
    return open_log(MemoryDisk())


def append(log: Log, *batches: memoryview) -> None:
    for batch in batches:
        log.append_as_leader(batch, leader_epoch=3, now_ms=NOW_MS)


@pytest.mark.parametrize("make", [garbage, multitude])
def test_a_time_finds_the_first_offset_of_an_unreadable_batch(
    log: Log, make: Callable[[], memoryview]
) -> None:
    append(log, make_batch(timestamp=NOW_MS), make(), make_batch(timestamp=NOW_MS + 9))
    assert log.offset_for_timestamp(NOW_MS) == at(NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 1) == at(NOW_MS + 5, 1)
    found = log.offset_for_timestamp(NOW_MS + 6)
    assert found is not None
    assert found.timestamp == NOW_MS + 9


@pytest.mark.parametrize("make", [garbage, multitude])
def test_the_largest_timestamp_may_be_in_an_unreadable_batch(
    log: Log, make: Callable[[], memoryview]
) -> None:
    append(log, make_batch(timestamp=NOW_MS), make())
    assert log.max_timestamp_offset() == at(NOW_MS + 5, 1)
