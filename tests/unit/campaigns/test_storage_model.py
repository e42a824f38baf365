"""Tests of the model of a log."""

import pytest

from campaigns.storage_model import (
    ABORT_MARKER,
    COMMIT_MARKER,
    MARKER_KEY,
    MARKER_VALUE,
    Aborted,
    ModelBatch,
    ModelLog,
    Replay,
    model_batch,
)
from lograft.wire.batches import Record, build_batch


def batch(base: int, count: int = 1, pid: int = -1, seq: int = -1, txn: bool = False) -> ModelBatch:
    records = [Record(base + n, 1_000 + base + n, b"k", b"v") for n in range(count)]
    return model_batch(
        build_batch(
            records,
            leader_epoch=base // 10,
            producer_id=pid,
            producer_epoch=0 if pid >= 0 else -1,
            base_sequence=seq,
            transactional=txn,
        )
    )


def marker(base: int, pid: int, kind: int) -> ModelBatch:
    record = Record(base, 5, MARKER_KEY.pack(0, kind), MARKER_VALUE.pack(0, 0))
    data = build_batch(
        [record], producer_id=pid, producer_epoch=0, control=True, transactional=True
    )
    return model_batch(data)


def test_truncation_removes_the_batch_that_contains_the_offset() -> None:
    log = ModelLog(0, [batch(0, 3), batch(3, 2), batch(5)])
    assert log.end == 6
    assert log.truncate(4).end == 3
    assert log.truncate(5).end == 5
    assert log.truncate(0).end == 0


def test_batch_is_found_by_any_of_its_offsets() -> None:
    log = ModelLog(10, [batch(10, 3), batch(13)])
    assert [log.batch_at(offset) for offset in (9, 14)] == [None, None]
    found = log.batch_at(12)
    assert found is not None
    assert found.base_offset == 10
    assert [each.base_offset for each in log.visible(13)] == [13]


def test_gap_between_batches_is_rejected() -> None:
    with pytest.raises(AssertionError):
        ModelLog(0, [batch(0), batch(2)])


def test_timestamp_lookup_ignores_records_below_the_log_start() -> None:
    log = ModelLog(0, [batch(0, 3), batch(3)])
    assert log.first_at_or_after(0, 0) == (0, 1_000)
    assert log.first_at_or_after(0, 2) == (2, 1_002)
    assert log.first_at_or_after(1_003, 0) == (3, 1_003)
    assert log.first_at_or_after(1_004, 0) is None


def test_replay_keeps_five_batches_and_the_open_transaction() -> None:
    batches = [batch(n, pid=1, seq=n) for n in range(7)]
    replay = Replay.of(batches)
    assert [each.base_offset for each in replay.producers[1].batches] == [2, 3, 4, 5, 6]
    assert replay.producers[1].next_sequence == 7
    assert replay.producers[1].transaction_start == -1


def test_replay_lists_aborted_transactions_only() -> None:
    replay = Replay.of(
        [
            batch(0, pid=1, seq=0, txn=True),
            marker(1, 1, ABORT_MARKER),
            batch(2, pid=1, seq=1, txn=True),
            marker(3, 1, COMMIT_MARKER),
            batch(4, pid=1, seq=2, txn=True),
        ]
    )
    assert replay.aborted == [Aborted(1, 0, 1)]
    assert replay.producers[1].transaction_start == 4
