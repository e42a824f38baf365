from array import array

import pytest

from lograft.model.types import Offset
from lograft.storage.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    SnapshotCorrupt,
)
from lograft.storage.log import Log
from lograft.storage.producer_snapshots import decode_snapshot, encode_snapshot
from lograft.storage.producers import UNVERIFIED, ProducerStates, Verification
from lograft.storage.types import AppendResult, FixedLogConfig, Origin, TransactionEnd
from lograft.testing.memory import MemoryDisk
from tests.unit.storage.logs import NOW_MS, make_batch, make_marker, open_log


@pytest.fixture
def log() -> Log:
    return open_log(MemoryDisk())


def send(
    log: Log, sequence: int, *, count: int = 1, epoch: int = 0, transactional: bool = False
) -> AppendResult:
    batch = make_batch(
        [b"v"] * count,
        producer_id=5,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, verification=UNVERIFIED)


def end(log: Log, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> AppendResult:
    marker = make_marker(5, commit=commit, epoch=epoch, coordinator_epoch=coordinator_epoch)
    return log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def test_repeats_of_the_last_five_get_their_offset(log: Log) -> None:
    first = [send(log, 2 * i, count=2) for i in range(7)]
    for i in range(2, 7):
        again = send(log, 2 * i, count=2)
        assert again.duplicate
        assert again.base_offset == first[i].base_offset
    assert log.end_offset == 14
    with pytest.raises(OutOfOrderSequence):
        send(log, 2, count=2)


def test_gaps_and_other_batch_borders_are_out_of_order(log: Log) -> None:
    send(log, 0, count=3)
    with pytest.raises(OutOfOrderSequence):
        send(log, 4)
    with pytest.raises(OutOfOrderSequence):
        send(log, 0, count=2)
    assert send(log, 3).base_offset == 3


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    assert send(log, 17).base_offset == 0
    with pytest.raises(OutOfOrderSequence):
        send(log, 19)


def test_sequences_wrap(log: Log) -> None:
    send(log, 2**31 - 2, count=3)
    assert send(log, 1).base_offset == 3
    assert send(log, 2**31 - 2, count=3).duplicate


def test_the_largest_sequence_is_followed_by_zero_only(log: Log) -> None:
    send(log, 2**31 - 1)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1)
    assert send(log, 0).base_offset == 1
    assert send(log, 2**31 - 1).duplicate
    assert send(log, 1).base_offset == 2


def test_a_repeat_in_another_epoch_is_none(log: Log) -> None:
    send(log, 0)
    assert send(log, 0, epoch=1).base_offset == 1
    assert send(log, 0, epoch=1).duplicate
    with pytest.raises(ProducerFenced):
        send(log, 0)


def test_a_forgotten_producer_may_begin_anywhere(log: Log) -> None:
    send(log, 0, epoch=3)
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    with_old_epoch = send(log, 40, epoch=2)
    assert with_old_epoch.base_offset == 1
    with pytest.raises(OutOfOrderSequence):
        send(log, 40, epoch=3)


def test_a_producer_outlives_its_records(log: Log) -> None:
    """Retention deletes the batches, but only time expires their producers."""
    send(log, 0)
    log.advance_start(Offset(1))
    log.delete_old_segments(NOW_MS, log.end_offset)
    assert log.segments[0].base_offset == 1
    assert send(log, 0).duplicate
    with pytest.raises(OutOfOrderSequence):
        send(log, 2)
    assert send(log, 1).base_offset == 1


def test_after_a_marker_of_the_same_epoch_the_sequences_go_on(log: Log) -> None:
    send(log, 0, transactional=True)
    end(log, commit=True)
    with pytest.raises(OutOfOrderSequence):
        send(log, 2, transactional=True)
    assert send(log, 1, transactional=True).base_offset == 2


def test_a_producer_known_by_a_marker_alone_begins_at_zero(log: Log) -> None:
    end(log, commit=False)
    with pytest.raises(OutOfOrderSequence):
        send(log, 5)
    assert send(log, 0).base_offset == 1


def test_a_new_epoch_begins_at_zero_and_fences(log: Log) -> None:
    send(log, 0)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, epoch=1)
    send(log, 0, epoch=1)
    with pytest.raises(ProducerFenced):
        send(log, 1, epoch=0)


def test_transactions_hold_the_last_stable_offset(log: Log) -> None:
    send(log, 0)
    send(log, 1, transactional=True)
    assert log.first_unstable_offset == 1
    assert log.last_stable_offset(Offset(2)) == 1
    with pytest.raises(InvalidTransactionState):
        send(log, 2)
    end(log, commit=True)
    assert log.producers.open_transactions == 0
    assert log.last_stable_offset(Offset(2)) == 1, "the marker is not committed yet"
    assert log.last_stable_offset(Offset(3)) == 3


def test_aborts_are_indexed(log: Log) -> None:
    send(log, 0, transactional=True)
    send(log, 1, transactional=True)
    end(log, commit=False)
    send(log, 2, transactional=True)
    end(log, commit=True)
    (aborted,) = log.aborted_transactions(0, 10)
    assert aborted == (5, 0, 2, 3)
    assert log.aborted_transactions(3, 10) == []


def test_a_reader_far_back_is_not_told_of_all_that_was_aborted_since() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(index_interval_bytes=300))
    for i in range(100):
        send(log, i, transactional=True)
        end(log, commit=False)
    for _ in range(2):
        part = log.read(20, bytes_max=400)
        assert part is not None
        aborted = log.find_aborted_in_slice(part, 20, log.end_offset)
        assert [a.first_offset for a in aborted][:3] == [20, 22, 24]
        assert len(aborted) < 10
        log.roll(NOW_MS)


def test_a_lying_index_hides_no_abort() -> None:
    log = open_log(MemoryDisk(), FixedLogConfig(index_interval_bytes=300))
    for i in range(100):
        send(log, i, transactional=True)
        end(log, commit=False)
    index = log.active.offset_index
    index._offsets[:] = array("I", [0] * len(index))
    part = log.read(20, bytes_max=400)
    assert part is not None
    aborted = log.find_aborted_in_slice(part, 20, log.end_offset)
    assert [a.first_offset for a in aborted][:3] == [20, 22, 24]


def test_old_coordinators_are_fenced(log: Log) -> None:
    send(log, 0, transactional=True)
    end(log, commit=True, coordinator_epoch=4)
    with pytest.raises(CoordinatorFenced):
        end(log, commit=True, coordinator_epoch=3)
    with pytest.raises(ProducerFenced):
        end(log, commit=True, coordinator_epoch=4, epoch=-1)


def test_a_marker_with_the_next_epoch_fences_late_writes(log: Log) -> None:
    send(log, 0, transactional=True)
    end(log, commit=True, epoch=1)
    with pytest.raises(ProducerFenced):
        send(log, 1, transactional=True)
    assert send(log, 0, epoch=1, transactional=True).base_offset == 2


def test_idle_producers_expire_but_not_in_a_transaction(log: Log) -> None:
    send(log, 0, transactional=True)
    assert log.producers.expire(NOW_MS + 10_000, 1000) == 0
    end(log, commit=True)
    assert log.producers.expire(NOW_MS + 999, 1000) == 0
    assert log.producers.expire(NOW_MS + 1000, 1000) == 1
    assert len(log.producers) == 0


def test_snapshot_holds_everything(log: Log) -> None:
    for i in range(6):
        send(log, i, transactional=True)
    end(log, commit=False)
    send(log, 6, transactional=True)
    states = ProducerStates()
    states.load(decode_snapshot(encode_snapshot(log.producers)))
    assert states == log.producers
    assert states.first_undecided_offset == log.producers.first_undecided_offset == 7


def test_last_entry_of_an_id_is_what_kafka_reads(log: Log) -> None:
    for i in range(3):
        send(log, i)
    data = encode_snapshot(log.producers)
    assert int.from_bytes(data[6:10], "big") == 3
    newest = data[-46:]
    assert int.from_bytes(newest[:8], "big") == 5
    assert int.from_bytes(newest[10:14], "big") == 2


@pytest.mark.parametrize("position", [0, 3, 8, 20, -1])
def test_damaged_snapshots_are_refused(log: Log, position: int) -> None:
    send(log, 0)
    data = bytearray(encode_snapshot(log.producers))
    data[position] ^= 1
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(bytes(data))
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(bytes(data[:-1]))


# ── the next epoch with every marker (transaction version 2) ─────────────────────────────────────


def check_end(log: Log, *, epoch: int, version: int = 2, coordinator_epoch: int = 0) -> None:
    log.producers.check_end(TransactionEnd(5, epoch, True, coordinator_epoch, version))


def test_a_marker_that_brings_the_next_epoch_must_be_above_the_open_transaction(log: Log) -> None:
    send(log, 0, epoch=3, transactional=True)
    with pytest.raises(ProducerFenced):
        check_end(log, epoch=3)
    check_end(log, epoch=3, version=1)
    check_end(log, epoch=4)


def test_a_late_repeat_of_a_marker_does_not_end_the_transaction_after_it(log: Log) -> None:
    send(log, 0, transactional=True)
    end(log, commit=True, epoch=1)
    check_end(log, epoch=1)  # no transaction is open: the marker is repeated
    send(log, 0, epoch=1, transactional=True)
    with pytest.raises(ProducerFenced):
        check_end(log, epoch=1)
    check_end(log, epoch=2)


def test_the_largest_epoch_is_written_twice(log: Log) -> None:
    """The epoch cannot be incremented: the marker has the epoch of its records, and the producer
    gets a new id."""
    send(log, 0, epoch=32767, transactional=True)
    check_end(log, epoch=32767)


# ── verification by the coordinator ──────────────────────────────────────────────────────────────


def begin(
    log: Log, sequence: int = 0, *, epoch: int = 0, adds: bool = False
) -> Verification | None:
    return log.producers.begin_verification(5, epoch, sequence, adds=adds, now_ms=NOW_MS)


def send_verified(
    log: Log, sequence: int, verification: Verification | None, *, epoch: int = 0
) -> AppendResult:
    batch = make_batch(
        producer_id=5, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, verification=verification)


def test_a_transaction_begins_with_the_word_of_its_coordinator(log: Log) -> None:
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 0, None)
    assert log.end_offset == 0
    send_verified(log, 0, begin(log))
    assert begin(log, 1) is None, "it is open: nobody has to be asked"
    send_verified(log, 1, None)


def test_a_marker_makes_an_answer_under_way_worthless(log: Log) -> None:
    asked = begin(log)
    end(log, commit=False)
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 0, asked)
    # The verification of the next transaction does not confirm the previous one.
    again = begin(log)
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 0, asked)
    assert send_verified(log, 0, again).base_offset == 1


def test_a_marker_that_a_follower_wrote_counts_too(log: Log) -> None:
    asked = begin(log)
    log.append_as_follower(make_marker(5, commit=False))
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 0, asked)


def test_an_open_transaction_of_another_epoch_is_not_this_one(log: Log) -> None:
    send_verified(log, 0, begin(log))
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 0, None, epoch=1)


def test_no_batch_overtakes_one_that_waits_for_the_same_word(log: Log) -> None:
    first, second = begin(log, 0), begin(log, 1)
    assert first is second
    with pytest.raises(OutOfOrderSequence):
        send_verified(log, 1, second)
    send_verified(log, 0, first)
    assert send_verified(log, 1, second).base_offset == 1


def test_a_newer_epoch_has_its_own_lowest_sequence(log: Log) -> None:
    begin(log, 7)
    begin(log, 9, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        send_verified(log, 10, begin(log, 11, epoch=1), epoch=1)
    assert send_verified(log, 9, begin(log, 9, epoch=1), epoch=1).base_offset == 0


def test_where_epochs_grow_an_unknown_producer_begins_at_zero(log: Log) -> None:
    with pytest.raises(OutOfOrderSequence):
        send_verified(log, 3, begin(log, 3, adds=True))
    assert send_verified(log, 0, begin(log, adds=True)).base_offset == 0


def test_words_are_forgotten_with_producers_and_truncation(log: Log) -> None:
    asked = begin(log)
    log.producers.expire(NOW_MS + 1000, 1000)
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 0, asked)
    send(log, 0)
    asked = begin(log, 1)
    log.truncate(Offset(0))
    with pytest.raises(InvalidTransactionState):
        send_verified(log, 1, asked)
