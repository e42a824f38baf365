import random

import pytest

from lograft.model.types import Offset
from lograft.simulation.errors import SimulatedCrash
from lograft.storage.cleaner import Cleanable, Cleaning, find_cleanable
from lograft.storage.log import Log
from lograft.storage.producers import UNVERIFIED
from lograft.storage.types import FixedLogConfig, Origin
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import Record, build_batch, iterate_headers
from tests.unit.storage.logs import (
    NOW_MS,
    flush,
    make_batch,
    make_disk,
    make_marker,
    open_log,
    read_all,
)

CONFIG = FixedLogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)


def put(log: Log, key: bytes, value: bytes | None, now_ms: int = NOW_MS, **options: int) -> int:
    batch = build_batch([Record(0, now_ms, key, value)], **options)  # type: ignore[arg-type]
    result = log.append_as_leader(
        memoryview(bytearray(batch)), leader_epoch=1, now_ms=now_ms, verification=UNVERIFIED
    )
    return result.base_offset


def find(log: Log, first_dirty: int = 0, now_ms: int = NOW_MS) -> Cleanable | None:
    flush(log)
    return find_cleanable(
        log, first_dirty=Offset(first_dirty), now_ms=now_ms, high_watermark=log.end_offset
    )


def test_what_a_power_loss_could_take_supersedes_nothing() -> None:
    log = open_log(MemoryDisk(), config=CONFIG)
    for _ in range(20):
        put(log, b"a", b"x" * 50)
    assert len(log.segments) > 1
    assert (
        find_cleanable(log, first_dirty=Offset(0), now_ms=NOW_MS, high_watermark=log.end_offset)
        is None
    )


def clean(log: Log, first_dirty: int = 0, now_ms: int = NOW_MS, keys_max: int = 100) -> int:
    cleanable = find(log, first_dirty, now_ms)
    assert cleanable is not None
    cleaning = Cleaning(log, cleanable, now_ms=now_ms, keys_max=keys_max)
    cleaning.run()
    assert cleaning.swap_in(log)
    log.remove_expired_files(now_ms)
    return cleaning.first_dirty


def table(log: Log) -> dict[bytes | None, bytes | None]:
    """The last value of each key, as read by a consumer of the whole log."""
    return {record.key: record.value for record in read_all(log)}


def fill(log: Log, count: int = 60, keys: int = 5) -> None:
    for i in range(count):
        put(log, b"key-%d" % (i % keys), b"value-%d" % i, NOW_MS + i)


def headers(log: Log) -> list[tuple[int, int, int]]:
    found = []
    for segment in log.segments:
        for _, header in iterate_headers(segment.file.pread(segment.size, 0)):
            found.append((header.base_offset, header.last_offset, header.record_count))
    return found


def test_last_value_of_each_key_survives() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    fill(log)
    before, size, end = table(log), log.size_bytes, log.end_offset
    first_dirty = clean(log)
    assert table(log) == before
    assert log.size_bytes < size / 2
    assert log.end_offset == end
    assert first_dirty == log.active.base_offset
    offsets = [record.offset for record in read_all(log)]
    assert offsets == sorted(set(offsets))


def test_cleaned_log_opens_again_either_way() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    fill(log)
    clean(log)
    expected, layout = read_all(log), headers(log)
    assert read_all(open_log(disk, CONFIG)) == expected
    log = open_log(disk, CONFIG)
    assert headers(log) == layout
    log.close(clean=True)
    log = open_log(disk, CONFIG, clean=True)
    assert read_all(log) == expected


def test_reading_from_every_offset_finds_the_next_record() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    fill(log)
    clean(log)
    everything = read_all(log)
    for offset in range(log.end_offset):
        assert read_all(log, start=offset) == [r for r in everything if r.offset >= offset]


def test_segments_have_no_holes_between_them() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    fill(log, count=100, keys=2)
    clean(log)
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        data = segment.file.pread(segment.size, 0)
        last = [header for _, header in iterate_headers(data)][-1]
        assert last.last_offset + 1 == following.base_offset


def test_tombstone_stays_for_its_retention_then_goes() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put(log, b"gone", b"value")
    put(log, b"gone", None)
    fill(log, 20)
    clean(log)
    assert b"gone" in table(log)
    assert table(log)[b"gone"] is None
    fill(log, 20)
    clean(log, now_ms=NOW_MS + 999)
    assert b"gone" in table(log)
    fill(log, 20)
    clean(log, now_ms=NOW_MS + 1001)
    assert b"gone" not in table(log)


def test_records_without_a_key_go() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(segment_bytes=300))
    log.append_as_leader(make_batch([b"no key"]), leader_epoch=1, now_ms=NOW_MS)
    log.config = CONFIG
    fill(log, 20)
    clean(log)
    assert None not in table(log)


def test_more_keys_than_fit_take_several_passes() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    fill(log, 80, keys=40)
    before = table(log)
    first_dirty, passes = 0, 0
    while find(log, first_dirty) is not None:
        first_dirty = clean(log, first_dirty, keys_max=7)
        passes += 1
        assert table(log) == before
    assert passes > 2


def test_last_batch_of_a_producer_stays_so_its_sequence_is_known() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    for sequence in range(3):
        put(log, b"k", b"%d" % sequence, producer_id=9, producer_epoch=0, base_sequence=sequence)
    fill(log, 40)
    put(log, b"k", b"newer")
    log.roll(NOW_MS)
    clean(log)
    kept = [h for h in headers(log) if h[0] == 2]
    assert kept == [(2, 2, 0)]
    for name in disk.list_dir(log.directory):
        if name.endswith(".snapshot"):
            disk.unlink(f"{log.directory}/{name}")
    producer = open_log(disk, CONFIG).producers.get(9)
    assert producer is not None
    assert producer.last_sequence == 2


def in_transaction(log: Log, key: bytes, value: bytes, sequence: int) -> None:
    put(
        log,
        key,
        value,
        producer_id=9,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def end_transaction(log: Log, *, commit: bool) -> None:
    log.append_as_leader(
        make_marker(9, commit=commit), leader_epoch=1, now_ms=NOW_MS, origin=Origin.COORDINATOR
    )


def test_aborted_records_go_and_never_hide_older_ones() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    put(log, b"k", b"good")
    in_transaction(log, b"k", b"bad", 0)
    end_transaction(log, commit=False)
    in_transaction(log, b"other", b"committed", 1)
    end_transaction(log, commit=True)
    fill(log, 20)
    clean(log)
    assert table(log)[b"k"] == b"good"
    assert table(log)[b"other"] == b"committed"


def test_abort_marker_outlives_its_records_by_the_retention() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    in_transaction(log, b"k", b"bad", 0)
    end_transaction(log, commit=False)
    in_transaction(log, b"k2", b"x", 1)
    end_transaction(log, commit=True)
    fill(log, 20)
    assert clean(log)
    assert [h[0] for h in headers(log)][:2] == [1, 2]
    fill(log, 20)
    clean(log, now_ms=NOW_MS)
    assert headers(log)[0][0] == 1
    fill(log, 20)
    clean(log, now_ms=NOW_MS + 2000)
    assert headers(log)[0][0] == 2


def test_abort_index_survives_while_records_may_be_read() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    fill(log, 20)
    in_transaction(log, b"k", b"bad", 0)
    end_transaction(log, commit=False)
    aborted = log.aborted_transactions(0, log.end_offset)
    assert len(aborted) == 1
    fill(log, 20)
    clean(log, keys_max=2)  # ends before the transaction
    assert log.aborted_transactions(0, log.end_offset) == aborted


def test_open_transaction_is_not_touched() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    fill(log, 30)
    in_transaction(log, b"key-0", b"open", 0)
    fill(log, 30)
    cleanable = find(log)
    assert cleanable is not None
    assert cleanable.upto == 30
    clean(log)
    assert len([r for r in read_all(log) if r.offset >= 30]) == 31


def test_dirty_ratio_and_lags_decide_whether_to_clean() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    assert find(log) is None
    fill(log)
    assert find(log) is not None
    log.config = FixedLogConfig(cleanup_compact=True, min_cleanable_dirty_ratio=1.0)
    assert find(log) is None
    log.config = FixedLogConfig(
        cleanup_compact=True, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50
    )
    assert find(log, now_ms=NOW_MS + 10) is None
    late = find(log, now_ms=NOW_MS + 60)
    assert late is not None
    assert late.is_late
    log.config = FixedLogConfig(
        cleanup_compact=True, min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=1000
    )
    assert find(log, now_ms=NOW_MS + 500) is None
    partly = find(log, now_ms=NOW_MS + 1030)
    assert partly is not None
    assert 0 < partly.upto < log.active.base_offset
    log.config = FixedLogConfig()
    assert find(log) is None


def test_truncation_meanwhile_discards_the_result() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    fill(log)
    cleanable = find(log)
    assert cleanable is not None
    cleaning = Cleaning(log, cleanable, now_ms=NOW_MS)
    cleaning.run()
    log.truncate(Offset(10))
    assert not cleaning.swap_in(log)
    assert not [name for name in disk.list_dir(log.directory) if "cleaned" in name]
    assert [record.offset for record in read_all(log)] == list(range(10))


def prepare() -> tuple[MemoryDisk, Log]:
    disk = make_disk()
    log = open_log(disk, CONFIG)
    fill(log, 30)
    in_transaction(log, b"key-1", b"bad", 0)
    end_transaction(log, commit=False)
    fill(log, 30)
    flush(log)
    return disk, log


def clean_and_stop(log: Log) -> None:
    clean(log)
    flush(log)


def committed(log: Log) -> dict[bytes | None, bytes | None]:
    aborted = log.aborted_transactions(log.log_start_offset, log.end_offset)
    hidden = {t.first_offset for t in aborted}
    return {r.key: r.value for r in read_all(log) if r.offset not in hidden}


@pytest.mark.parametrize("lose", [True, False], ids=["power loss", "kill"])
def test_a_stop_at_any_step_loses_nothing(lose: bool) -> None:
    disk, log = prepare()
    expected, end, durable = committed(log), log.end_offset, log.durable_offset
    first = disk.operations
    clean_and_stop(log)
    steps = disk.operations - first
    assert steps > 30
    for step in range(1, steps + 1):
        disk, log = prepare()
        disk.crash_after(step)
        with pytest.raises(SimulatedCrash):
            clean_and_stop(log)
        disk = MemoryDisk(disk.platter)
        if lose:
            disk.platter.on_power_lost(random.Random(step))
        log = open_log(disk, CONFIG, recovery_point=durable)
        assert log.end_offset == end, step
        assert committed(log) == expected, step
        assert not [n for n in disk.list_dir(log.directory) if n.endswith((".swap", ".cleaned"))]


def test_what_may_become_a_producers_last_batch_again_stays() -> None:
    """Its newest batch is not committed: it may be truncated, and then the sequence before it must
    be known."""
    log = open_log(MemoryDisk(), config=CONFIG)
    for producer_id in (7, 8):
        for sequence in range(18):
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            put(log, b"a", b"x" * 50, **options)
    committed = log.end_offset
    put(log, b"a", b"x" * 50, producer_id=7, producer_epoch=0, base_sequence=18)
    flush(log)
    cleanable = find_cleanable(log, first_dirty=Offset(0), now_ms=NOW_MS, high_watermark=committed)
    assert cleanable is not None
    cleaning = Cleaning(log, cleanable, now_ms=NOW_MS, keys_max=100)
    cleaning.run()
    assert cleaning.swap_in(log)
    kept = [
        header.last_offset
        for segment in log.segments
        for _, header in iterate_headers(segment.file.pread(segment.size, 0))
        if header.producer_id == 7
    ]
    assert 17 in kept, "its last one that is committed"
