from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from lograft.model.errors import DiskFailed
from lograft.model.types import NO_EPOCH, Offset
from lograft.simulation.disk import DiskFault, Operation, SimulatedDisk
from lograft.simulation.platter import CAPACITY_BYTES, Platter
from lograft.storage.errors import (
    BatchCorruptBelowRecoveryPoint,
    BeginsInsideBatch,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    LogClosed,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnexpectedOffset,
    UnsupportedBatchFormat,
    UnsupportedCompression,
)
from lograft.storage.log import Log
from lograft.storage.types import AppendResult, FixedLogConfig, Origin
from lograft.testing.memory import MemoryDisk, MemoryFile
from lograft.wire.batches import Record, build_batch, patch, read_header, read_records
from lograft.wire.compression import Codec
from tests.unit.storage.logs import DIRECTORY, NOW_MS, flush, make_batch, open_log, read_all

SMALL = FixedLogConfig(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=50)


def append(log: Log, batch: memoryview | None = None, *, now_ms: int = NOW_MS) -> AppendResult:
    return log.append_as_leader(
        make_batch() if batch is None else batch, leader_epoch=1, now_ms=now_ms
    )


def stored(log: Log, offset: int) -> bytes:
    piece = log.read(offset, bytes_max=1)
    assert piece is not None
    return piece.file.pread(piece.size, piece.position)


def fill(log: Log, count: int = 30, *, step_ms: int = 10) -> None:
    for i in range(count):
        append(log, make_batch([b"value-%d" % i], timestamp=NOW_MS + i * step_ms))


# ── offsets ──────────────────────────────────────────────────────────────────────────────────


def offsets(log: Log) -> tuple[Offset, Offset, Offset]:
    return log.log_start_offset, log.durable_offset, log.end_offset


def test_the_log_start_may_pass_what_is_durable() -> None:
    log = open_log(MemoryDisk())
    fill(log, 10)
    flush(log)
    fill(log, 10)
    log.advance_start(Offset(15))
    assert offsets(log) == (15, 10, 20)
    log.lower_durable(Offset(3))
    log.lower_durable(Offset(7))
    assert offsets(log) == (15, 3, 20)
    log.truncate(Offset(12))
    assert offsets(log) == (12, 3, 12)
    log.truncate_fully_and_start_at(Offset(40))
    assert offsets(log) == (40, 40, 40)


def test_offsets_outside_their_order_are_a_bug() -> None:
    log = open_log(MemoryDisk())
    fill(log, 10)
    before = offsets(log)
    breaks: list[Callable[[], None]] = [
        lambda: log.on_durable(Offset(11)),
        lambda: log.raise_start(Offset(11)),
        lambda: log.lower_durable(Offset(-1)),
        lambda: log.on_truncated(Offset(11), last_end=Offset(11)),
        lambda: log.on_emptied(Offset(-1)),
        lambda: log.write(make_batch(), 9, NOW_MS, NOW_MS),
    ]
    for break_it in breaks:
        with pytest.raises(AssertionError):
            break_it()
        assert offsets(log) == before


# ── rejected batches ─────────────────────────────────────────────────────────────────────────


def changed(**fields: Any) -> Callable[[], memoryview]:
    return lambda: make_batch([b"a", b"b"], **fields)


def with_bytes(position: int, value: bytes, *, new_crc: bool = True) -> Callable[[], memoryview]:
    def make() -> memoryview:
        batch = bytearray(make_batch([b"a", b"b"]))
        batch[position : position + len(value)] = value
        if new_crc:
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return memoryview(batch)

    return make


REFUSED: list[tuple[str, Callable[[], memoryview], type[Exception]]] = [
    ("too short", lambda: memoryview(bytearray(20)), CorruptBatch),
    ("cut", lambda: make_batch()[:-1], CorruptBatch),
    ("two batches", lambda: memoryview(bytearray(bytes(make_batch()) * 2)), InvalidRecord),
    ("bit flip", with_bytes(70, b"\xff", new_crc=False), CorruptBatch),
    ("magic 1", with_bytes(16, b"\x01"), UnsupportedBatchFormat),
    ("base offset", with_bytes(0, (7).to_bytes(8, "big")), InvalidRecord),
    ("no records", with_bytes(57, bytes(4)), InvalidRecord),
    ("count and delta", with_bytes(57, (3).to_bytes(4, "big")), InvalidRecord),
    (
        "lying count",
        with_bytes(57, (2**30).to_bytes(4, "big")),
        InvalidRecord,
    ),
    ("codec 5", with_bytes(21, b"\x00\x05"), UnsupportedCompression),
    ("control", changed(control=True), InvalidRecord),
    ("unknown flag", with_bytes(21, b"\x01\x00"), InvalidRecord),
    ("broker's time", changed(log_append_time_ms=1), InvalidTimestamp),
    ("no sequence", changed(producer_id=1, producer_epoch=0), InvalidRecord),
    ("no producer", changed(transactional=True), InvalidRecord),
    ("ahead", changed(timestamp=NOW_MS + 3_600_001), InvalidTimestamp),
    ("large", lambda: make_batch([bytes(2_000_000)]), MessageTooLarge),
]


@pytest.mark.parametrize(("make", "error"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused_batches_leave_no_trace(
    make: Callable[[], memoryview], error: type[Exception]
) -> None:
    log = open_log(MemoryDisk())
    append(log)
    with pytest.raises(error):
        append(log, make())
    assert log.end_offset == 1
    assert log.size_bytes == len(make_batch())
    append(log)
    assert len(read_all(log)) == 2


def test_batch_larger_than_a_segment() -> None:
    log = open_log(MemoryDisk(), SMALL)
    with pytest.raises(RecordListTooLarge):
        append(log, make_batch([bytes(1000)]))


def test_compacted_topics_need_keys() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(cleanup_compact=True))
    append(log, make_batch(key=b"k"))
    with pytest.raises(InvalidRecord, match="key"):
        append(log, make_batch())
    with pytest.raises(InvalidRecord, match="key"):
        append(log, make_batch(compression=Codec.GZIP))


def test_timestamps_too_old() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(message_timestamp_before_max_ms=1000))
    append(log, make_batch(timestamp=NOW_MS - 1000))
    append(log, make_batch(timestamp=-1))
    with pytest.raises(InvalidTimestamp):
        append(log, make_batch(timestamp=NOW_MS - 1001))


def test_log_append_time() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(message_timestamp_log_append=True))
    result = append(log, make_batch(timestamp=5))
    assert result.log_append_time_ms == NOW_MS
    assert read_all(log)[0].timestamp == NOW_MS
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS, 0, 1)


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_topics_codec_wins(sent: Codec, wanted: str) -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(compression_type=wanted))
    batch = make_batch(
        [b"a" * 50, b"b"], compression=sent, producer_id=3, producer_epoch=2, base_sequence=9
    )
    append(log, batch)
    header = read_header(stored(log, 0))
    expected = (
        sent if wanted == "producer" else Codec["NONE" if wanted[0] == "u" else wanted.upper()]
    )
    assert header.compression == expected
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, 9)
    assert [record.value for record in read_all(log)] == [b"a" * 50, b"b"]


def test_our_own_writers_may_send_several_batches() -> None:
    log = open_log(MemoryDisk())
    two = memoryview(bytearray(bytes(make_batch([b"a", b"b"])) + bytes(make_batch([b"c"]))))
    result = log.append_as_leader(two, leader_epoch=3, now_ms=NOW_MS, origin=Origin.RAFT)
    assert (result.base_offset, result.end_offset) == (0, 3)
    assert [record.offset for record in read_all(log)] == [0, 1, 2]


# ── followers ────────────────────────────────────────────────────────────────────────────────


def numbered(offset: int, epoch: int = 1, count: int = 1) -> bytes:
    batch = bytearray(make_batch([b"v"] * count))
    patch(batch, 0, offset, epoch)
    return bytes(batch)


def test_follower_keeps_offsets_and_epochs_and_drops_a_cut_batch() -> None:
    log = open_log(MemoryDisk())
    data = numbered(0, 1, 2) + numbered(2, 4) + numbered(7, 4) + numbered(8, 4)[:-3]
    result = log.append_as_follower(memoryview(bytearray(data)))
    assert (result.base_offset, result.end_offset) == (0, 8)
    assert log.epochs.entries == [(1, 0), (4, 2)]
    assert log.epoch_end(1) == (1, 2)
    assert log.epoch_end(3) == (1, 2)
    assert log.epoch_end(4) == (4, 8)
    assert log.epoch_end(9) == (-1, -1)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(memoryview(bytearray(numbered(7))))
    damaged = bytearray(numbered(8))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_as_follower(memoryview(damaged))


def test_an_empty_log_that_begins_inside_a_batch_takes_it_whole() -> None:
    log = open_log(MemoryDisk())
    log.truncate_fully_and_start_at(Offset(12))
    batch = memoryview(bytearray(numbered(10, count=5)))
    with pytest.raises(BeginsInsideBatch) as found:
        log.append_as_follower(batch)
    log.truncate_fully_and_start_at(found.value.base)
    log.append_as_follower(batch)
    log.advance_start(Offset(12))
    assert (log.log_start_offset, log.end_offset) == (12, 15)
    assert [record.offset for record in read_all(log)] == [12, 13, 14]


def test_an_emptied_log_forgets_its_epochs_on_disk_too() -> None:
    """Otherwise the next start would assign the records that follow to epoch 7, whose tail was
    truncated and never committed: the log of the leader continues in epoch 6."""
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_leader(make_batch(), leader_epoch=7, now_ms=NOW_MS)
    flush(log)
    log.truncate_fully_and_start_at(Offset(20))
    log = open_log(disk)
    assert log.latest_epoch == NO_EPOCH
    log.append_as_follower(memoryview(bytearray(numbered(20, 6))))
    assert log.epoch_for_offset(20) == 6
    # Not flushed: only the process was killed.
    log = open_log(disk)
    assert log.end_offset == 21


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def test_first_batch_comes_whole_or_not_at_all() -> None:
    log = open_log(MemoryDisk())
    append(log, make_batch([b"x" * 1000]))
    append(log)
    size = len(make_batch([b"x" * 1000]))
    assert log.read(0, bytes_max=10, at_least_one=False) is None
    piece = log.read(0, bytes_max=10)
    assert piece is not None
    assert piece.size == size
    larger = log.read(0, bytes_max=size + 5)
    assert larger is not None
    assert larger.size == size + 5


def test_out_of_range() -> None:
    log = open_log(MemoryDisk())
    append(log)
    assert log.read(1, bytes_max=10) is None
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, bytes_max=10)
        assert (caught.value.log_start, caught.value.end) == (0, 1)


def test_readers_keep_their_file_when_its_segment_goes() -> None:
    log = open_log(MemoryDisk(), SMALL)
    fill(log)
    piece = log.read(0, bytes_max=200)
    assert piece is not None
    before = piece.file.pread(piece.size, piece.position)
    log.truncate_fully_and_start_at(Offset(100))
    assert piece.file.pread(piece.size, piece.position) == before


def test_few_files_stay_open() -> None:
    log = open_log(MemoryDisk(), SMALL)
    fill(log, 100)
    assert len(log.segments) > 10
    read_all(log)
    assert sum(segment.is_open for segment in log.segments) <= 3


# ── rolling ──────────────────────────────────────────────────────────────────────────────────


def test_rolls_by_size_time_and_index() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(segment_bytes=300))
    fill(log, 10)
    assert len(log.segments) > 2
    log = open_log(MemoryDisk(), FixedLogConfig(segment_ms=100))
    fill(log, 23)
    assert [segment.base_offset for segment in log.segments] == [0, 11, 22]
    log = open_log(MemoryDisk(), FixedLogConfig(segment_index_bytes=36, index_interval_bytes=1))
    fill(log, 10)
    assert len(log.segments) > 1


# ── retention ────────────────────────────────────────────────────────────────────────────────


def test_retention_by_time_empties_even_an_idle_log() -> None:
    disk = MemoryDisk()
    log = open_log(disk, FixedLogConfig(segment_bytes=500, retention_ms=1000))
    fill(log, 30)
    assert log.delete_old_segments(NOW_MS + 1000, log.end_offset) == 0
    assert log.delete_old_segments(NOW_MS + 1150, log.end_offset) > 0
    assert 0 < log.log_start_offset < 30
    assert log.delete_old_segments(NOW_MS + 5000, log.end_offset) > 0
    assert log.log_start_offset == log.end_offset == 30
    append(log)
    assert [record.offset for record in read_all(log)] == [30]


def test_retention_by_size_and_the_high_watermark() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(segment_bytes=500, retention_bytes=900))
    fill(log, 40)
    assert log.delete_old_segments(NOW_MS, Offset(3)) == 0
    log.delete_old_segments(NOW_MS, log.end_offset)
    assert 900 <= log.size_bytes < 1400


def test_deleted_files_wait_for_their_delay() -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    fill(log, 30)
    log.advance_start(Offset(12))
    assert log.delete_old_segments(NOW_MS, log.end_offset) > 0
    assert log.segments[0].base_offset <= 12
    assert [n for n in disk.list_dir(DIRECTORY) if n.endswith(".deleted")]
    assert log.remove_expired_files(NOW_MS + 49) == 0
    assert log.remove_expired_files(NOW_MS + 50) > 0
    assert not [n for n in disk.list_dir(DIRECTORY) if n.endswith(".deleted")]
    with pytest.raises(OffsetOutOfRange):
        log.read(11, bytes_max=10)
    assert read_all(log)[0].offset == 12


# ── damage ───────────────────────────────────────────────────────────────────────────────────


def flip(disk: MemoryDisk, name: str, position: int) -> None:
    disk.platter.file(f"{DIRECTORY}/{name}").live[position] ^= 0x55


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: bytes(node.live) for path, node in disk.platter.files()}


def test_damage_below_the_recovery_point_is_never_cut() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    fill(log, 10)
    flush(log)
    fill(log, 10)
    flip(disk, "00000000000000000000.log", 200)
    before = contents(disk)
    with pytest.raises(BatchCorruptBelowRecoveryPoint) as caught:
        open_log(disk, recovery_point=10)
    assert caught.value.offset < 10
    assert contents(disk) == before


def test_damage_above_the_recovery_point_is_cut() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    fill(log, 20)
    size = log.size_bytes
    flip(disk, "00000000000000000000.log", size - 3)
    log = open_log(disk, recovery_point=10)
    assert log.end_offset == 19
    assert log.durable_offset == 19


def test_missing_fsynced_records_are_told() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    fill(log, 20)
    content = disk.platter.file(f"{DIRECTORY}/00000000000000000000.log").live
    del content[len(content) // 2 :]
    with pytest.raises(BatchCorruptBelowRecoveryPoint):
        open_log(disk, recovery_point=20)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd size", "zero tail", "bit flip"])
def test_damaged_derived_files_change_no_answer(suffix: str, damage: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    fill(log, 40)
    log.close(clean=True)
    for path, node in list(disk.platter.files()):
        if not path.endswith(suffix):
            continue
        content = node.live
        if damage == "missing":
            disk.unlink(path)
        elif damage == "empty":
            content.clear()
        elif damage == "odd size":
            content += b"abc"
        elif damage == "zero tail":
            content += bytes(480)
        elif content:
            content[len(content) // 2] ^= 0x55
    log = open_log(disk, SMALL, clean=True)
    assert [record.offset for record in read_all(log)] == list(range(40))
    for offset in range(40):
        assert read_all(log, start=offset)[0].offset == offset
    append(log)
    assert log.end_offset == 41


def test_a_damaged_epoch_file_is_made_anew() -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    for epoch in range(1, 6):
        log.append_as_leader(make_batch(), leader_epoch=epoch, now_ms=NOW_MS)
    expected = log.epochs.entries
    log.close(clean=True)
    for clean in (True, False):
        disk.platter.file(f"{DIRECTORY}/leader-epoch-checkpoint").live[:] = b"nonsense"
        assert open_log(disk, SMALL, clean=clean).epochs.entries == expected


# ── failures and close ───────────────────────────────────────────────────────────────────────


def test_a_failed_write_is_final() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log)
    disk.platter.capacity_bytes = disk.platter.used_bytes
    with pytest.raises(DiskFailed) as caught:
        append(log)
    assert caught.value.log_dir == "data"
    disk.platter.capacity_bytes = CAPACITY_BYTES
    with pytest.raises(DiskFailed):
        append(log)
    assert log.has_failed
    assert len(read_all(log)) == 1


def test_a_closed_log_takes_nothing() -> None:
    log = open_log(MemoryDisk())
    log.close(clean=True)
    with pytest.raises(LogClosed):
        append(log)


class CountingDisk(MemoryDisk):
    """Counts opened files, and reads of files and folders."""

    def __init__(self) -> None:
        super().__init__()
        self.opens = 0
        self.reads = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.opens += 1
        return super().open(path, create=create)

    def begin(self, operation: Operation, path: str, *fields: int | str) -> DiskFault | None:
        self.reads += operation == "read"
        return super().begin(operation, path, *fields)


def test_opening_after_a_clean_stop_reads_little() -> None:
    disk = CountingDisk()
    log = open_log(disk, FixedLogConfig(segment_bytes=2000, index_interval_bytes=100))
    fill(log, 300)
    log.close(clean=True)
    disk.opens = disk.reads = 0
    log = open_log(disk, log.config, clean=True)
    assert log.end_offset == 300
    assert disk.opens <= 6
    assert disk.reads <= 11


def test_a_flush_overtaken_by_a_truncation_does_not_count() -> None:
    log = open_log(MemoryDisk())
    fill(log, 10)
    plan = log.flush_plan()
    log.truncate(Offset(4))
    fill(log, 3)
    plan.run()
    log.mark_durable(plan)
    assert log.durable_offset <= 4
    flush(log)
    assert log.durable_offset == 7


def test_a_roll_during_a_flush_stays_on_the_list() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log)
    plan = log.flush_plan()
    plan.run()
    append(log)
    log.roll(NOW_MS)
    log.mark_durable(plan)
    assert log.durable_offset == 1
    flush(log)
    node = disk.platter.file(f"{DIRECTORY}/00000000000000000000.log")
    assert node.durable == node.live


def test_max_timestamp_is_of_visible_records() -> None:
    log = open_log(MemoryDisk())
    records = [Record(i, NOW_MS - i, None, b"v") for i in range(4)]
    append(log, memoryview(bytearray(build_batch(records))))
    assert log.max_timestamp_offset() == (NOW_MS, 0, 1)
    log.advance_start(Offset(2))
    assert log.max_timestamp_offset() == (NOW_MS - 2, 2, 1)
    assert log.offset_for_timestamp(NOW_MS - 2) == (NOW_MS - 2, 2, 1)
    assert log.offset_for_timestamp(NOW_MS) is None


def test_stored_batches_have_their_place_and_a_true_crc() -> None:
    log = open_log(MemoryDisk())
    append(log, make_batch([b"a", b"b"]))
    append(log, make_batch([b"c"]))
    header = read_header(stored(log, 2))
    assert (header.base_offset, header.leader_epoch) == (2, 1)
    assert read_records(stored(log, 2), bytes_max=100)[0].value == b"c"


def test_a_preallocated_segment_holds_its_space_until_it_is_rolled() -> None:
    platter = Platter()
    disk = SimulatedDisk(platter, random=Random(1))
    config = FixedLogConfig(segment_bytes=10_000, preallocate=True)
    log = open_log(disk, config)
    assert log.active.size == 0
    assert platter.used_bytes >= 10_000
    append(log, make_batch([b"v" * 500]))
    size = log.active.size
    assert platter.used_bytes < 10_000 + size
    log.roll(NOW_MS)
    # The next segment is preallocated, the rolled one is trimmed.
    assert platter.used_bytes < 10_000 + 2 * size
    append(log, make_batch([b"w"]))
    log.close(clean=True)
    assert platter.used_bytes < 3 * size
    assert [r.value for r in read_all(open_log(disk, config, clean=True))] == [b"v" * 500, b"w"]


def test_a_log_that_cannot_be_preallocated_works_without() -> None:
    platter = Platter()
    platter.capacity_bytes = 5_000
    disk = SimulatedDisk(platter, random=Random(1))
    log = open_log(disk, FixedLogConfig(segment_bytes=1 << 30, preallocate=True))
    append(log, make_batch())
    assert len(read_all(log)) == 1


def test_the_zeros_behind_a_segment_that_kafka_preallocated_are_cut() -> None:
    """Kafka makes such a file as long as the segment; after a crash the zeros remain."""
    disk = SimulatedDisk(Platter(), random=Random(1))
    log = open_log(disk, FixedLogConfig(preallocate=True))
    append(log, make_batch([b"v"]))
    path, size = log.active.path, log.active.size
    flush(log)
    disk.open(path).truncate(1 << 20)
    log = open_log(disk)
    assert (log.active.size, log.end_offset) == (size, 1)
    assert disk.open(path).size == size
    append(log, make_batch([b"w"]))
    assert [r.value for r in read_all(log)] == [b"v", b"w"]
