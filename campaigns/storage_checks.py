"""Compares a log with its model: contents, lookups and derived state."""

from random import Random
from typing import Final

from campaigns.storage_model import ModelBatch, ModelLog, Replay
from lograft.simulation.errors import InvariantViolated
from lograft.storage.errors import OffsetOutOfRange
from lograft.storage.log import Log
from lograft.wire.batches import HEADER_SIZE, check_crc, read_header
from lograft.wire.errors import MalformedMessage

#: Number of offsets and timestamps that a check looks up.
SAMPLES: Final = 12


def read_all(log: Log, random: Random) -> list[tuple[int, bytes]]:
    """Returns (base offset, bytes) of every batch in the log, after verifying the batches."""
    batches: list[tuple[int, bytes]] = []
    offset: int = log.log_start_offset
    while offset < log.end_offset:
        bytes_max = random.choice((1, 200, 3_000, 1 << 20))
        found = log.read(offset, bytes_max=bytes_max, bound=log.end_offset)
        if found is None:
            raise InvariantViolated(
                "D5", f"no data was read at {offset}, although the log ends at {log.end_offset}"
            )
        data = found.file.pread(found.size, found.position)
        if len(data) != found.size:
            raise InvariantViolated("D10", f"read {len(data)} of {found.size} bytes")
        position = 0
        while len(data) - position >= HEADER_SIZE:
            try:
                header = read_header(data, position)
            except MalformedMessage as error:
                raise InvariantViolated("D10", f"at {offset}: {error}") from None
            batch = data[position : position + header.size_bytes]
            if len(batch) < header.size_bytes:
                break
            if not check_crc(batch, 0, len(batch)):
                raise InvariantViolated("D10", f"bad CRC served at {header.base_offset}")
            if header.last_offset < offset:
                raise InvariantViolated("D5", f"requested {offset}, but got {header.last_offset}")
            batches.append((header.base_offset, batch))
            offset = header.last_offset + 1
            position += header.size_bytes
        if position == 0:
            raise InvariantViolated("D5", f"no complete batch at {offset}")
    return batches


def is_prefix(model: ModelLog, batches: list[tuple[int, bytes]], log: Log) -> bool:
    """Returns whether the log is a prefix of the model."""
    if log.end_offset > model.end:
        return False
    if not batches:
        return log.log_start_offset == log.end_offset
    if any(known is None or known.data != data for known, data in _pair_batches(model, batches)):
        return False
    return batches[-1][0] + read_header(batches[-1][1]).last_offset_delta + 1 == log.end_offset


def _pair_batches(
    model: ModelLog, batches: list[tuple[int, bytes]]
) -> list[tuple[ModelBatch | None, bytes]]:
    return [(model.batch_at(base), data) for base, data in batches]


def check_log(log: Log, model: ModelLog, replay: Replay, random: Random) -> None:
    """Checks everything that the log derives from its contents, which equal the model's."""
    log_start = log.log_start_offset
    visible = model.visible(log_start)
    _check_reads(log, model, random)
    _check_timestamps(log, model, random)
    _check_epochs(log, visible)
    _check_producers(log, replay, log_start)
    _check_aborted(log, replay, log_start)


def _check_reads(log: Log, model: ModelLog, random: Random) -> None:
    start, end = log.log_start_offset, log.end_offset
    for outside in (start - 1, end + 1):
        try:
            log.read(outside, bytes_max=1)
        except OffsetOutOfRange:
            continue
        raise InvariantViolated(
            "D6", f"{outside} was read from a log with offsets {start} to {end}"
        )
    if log.read(end, bytes_max=100) is not None:
        raise InvariantViolated("D6", f"data was read at the log end offset {end}")
    if start == end:
        return
    for _ in range(SAMPLES):
        offset = random.randrange(start, end)
        expected = model.batch_at(offset)
        assert expected is not None
        found = log.read(offset, bytes_max=1)
        data = b"" if found is None else found.file.pread(found.size, found.position)
        if data != expected.data:
            raise InvariantViolated("D2", f"a lookup of {offset} found a different batch")
        bound = random.randint(offset, end)
        bounded = log.read(offset, bytes_max=1 << 20, bound=bound)
        size = 0 if bounded is None else bounded.size
        expected_size = sum(
            len(batch.data)
            for batch in model.batches
            if batch.last_offset >= offset and batch.end <= bound
        )
        if size > expected_size or (size == 0) != (expected_size == 0):
            raise InvariantViolated(
                "D6", f"read {size} of {expected_size} bytes at {offset} up to {bound}"
            )


def _check_timestamps(log: Log, model: ModelLog, random: Random) -> None:
    start = log.log_start_offset
    stamps = [
        record
        for batch in model.visible(start)
        for record in batch.timestamps
        if record[0] >= start
    ]
    if not stamps:
        return
    for _ in range(SAMPLES // 2):
        timestamp = random.choice(stamps)[1] + random.choice((-1, 0, 1))
        found = log.offset_for_timestamp(timestamp)
        expected = model.first_at_or_after(timestamp, start)
        got = None if found is None else (found.offset, found.timestamp)
        if got != expected:
            raise InvariantViolated("D9", f"timestamp {timestamp}: found {got}, not {expected}")
    newest = max(stamp for _, stamp in stamps)
    latest = log.max_timestamp_offset()
    got = None if latest is None else (latest.offset, latest.timestamp)
    expected = next(record for record in stamps if record[1] == newest)
    if got != expected:
        raise InvariantViolated("D9", f"the largest timestamp is at {expected}, found {got}")


def _check_epochs(log: Log, visible: list[ModelBatch]) -> None:
    for batch in visible:
        offset = max(batch.base_offset, log.log_start_offset)
        if log.epoch_for_offset(offset) != batch.leader_epoch:
            found = log.epoch_for_offset(offset)
            raise InvariantViolated(
                "D9", f"offset {offset} is in epoch {batch.leader_epoch}, the cache has {found}"
            )
    ends: dict[int, int] = {}
    for batch in visible:
        ends[batch.leader_epoch] = batch.end
    for epoch, end in ends.items():
        if log.epoch_end(epoch) != (epoch, end):
            raise InvariantViolated(
                "D9", f"epoch {epoch} ends at {end}, the cache has {log.epoch_end(epoch)}"
            )


def _check_producers(log: Log, replay: Replay, log_start: int) -> None:
    """State from the deleted part of the log may be forgotten; the rest must be exact."""
    for producer_id, expected in replay.producers.items():
        kept = [batch for batch in expected.batches if batch.base_offset >= log_start]
        if not kept:
            continue
        producer = log.producers.get(producer_id)
        if producer is None:
            raise InvariantViolated("P3", f"producer {producer_id} is missing")
        found = [(batch.first_sequence, batch.base_offset) for batch in producer.batches]
        replayed = [(batch.base_sequence, batch.base_offset) for batch in kept]
        if producer.epoch != expected.epoch or found[-len(replayed) :] != replayed:
            raise InvariantViolated(
                "P3",
                f"producer {producer_id}: epoch {producer.epoch}, batches {found}; "
                f"a replay gives epoch {expected.epoch}, {replayed}",
            )
        start = expected.transaction_start
        if (start >= log_start or start < 0) and producer.transaction_start != start:
            raise InvariantViolated(
                "D9",
                f"producer {producer_id}: transaction from {producer.transaction_start}, "
                f"a replay gives {start}",
            )
    for known in log.producers.all():
        if known.batches and known.batches[-1].last_offset >= log.end_offset:
            raise InvariantViolated("D9", f"producer {known.producer_id} is ahead of the log")
    starts = [producer.transaction_start for producer in replay.producers.values()]
    undecided = min((start for start in starts if start >= 0), default=None)
    if undecided is None or undecided >= log_start:
        # A transaction whose start was deleted may be forgotten, but not later ones.
        found_start = log.first_unstable_offset
        if found_start != undecided:
            raise InvariantViolated(
                "D9", f"first unstable offset {found_start}, a replay gives {undecided}"
            )


def _check_aborted(log: Log, replay: Replay, log_start: int) -> None:
    found = {
        (entry.producer_id, entry.last_offset): entry.first_offset
        for entry in log.aborted_transactions(log_start, log.end_offset)
    }
    expected = {
        (entry.producer_id, entry.last_offset): entry.first_offset for entry in replay.aborted
    }
    for key, first in expected.items():
        if first >= log_start and found.get(key) != first:
            raise InvariantViolated("D9", f"aborted {key} from {first} is not in the index")
    for key, first in found.items():
        if key not in expected or first < expected[key]:
            raise InvariantViolated(
                "D9", f"the index has {key} from {first}, which was never aborted"
            )
