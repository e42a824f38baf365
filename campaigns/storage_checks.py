"""Compares a log with its model: contents, look-ups and everything derived."""

from random import Random
from typing import Final

from campaigns.storage_model import ModelBatch, ModelLog, Replay
from lograft.simulation.errors import InvariantViolated
from lograft.storage.errors import OffsetOutOfRange
from lograft.storage.log import Log
from lograft.wire.batches import HEADER_SIZE, check_crc, read_header
from lograft.wire.errors import MalformedMessage

#: Offsets and timestamps that one check looks up.
SAMPLES: Final = 12


def read_all(log: Log, random: Random) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of every batch that the log serves; all of them sound."""
    batches: list[tuple[int, bytes]] = []
    offset: int = log.log_start_offset
    while offset < log.end_offset:
        bytes_max = random.choice((1, 200, 3_000, 1 << 20))
        found = log.read(offset, bytes_max=bytes_max, bound=log.end_offset)
        if found is None:
            raise InvariantViolated(
                "D5", f"nothing is read at {offset}, the end is {log.end_offset}"
            )
        data = found.file.pread(found.size, found.position)
        if len(data) != found.size:
            raise InvariantViolated("D10", f"{found.size} bytes promised, {len(data)} there")
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
                raise InvariantViolated("D5", f"asked for {offset}, got {header.last_offset}")
            batches.append((header.base_offset, batch))
            offset = header.last_offset + 1
            position += header.size_bytes
        if position == 0:
            raise InvariantViolated("D5", f"no whole batch at {offset}")
    return batches


def agrees(model: ModelLog, batches: list[tuple[int, bytes]], log: Log) -> bool:
    """Whether the log is a beginning of this line of history."""
    if log.end_offset > model.end:
        return False
    if not batches:
        return log.log_start_offset == log.end_offset
    if any(known is None or known.data != data for known, data in _paired(model, batches)):
        return False
    return batches[-1][0] + read_header(batches[-1][1]).last_offset_delta + 1 == log.end_offset


def _paired(
    model: ModelLog, batches: list[tuple[int, bytes]]
) -> list[tuple[ModelBatch | None, bytes]]:
    return [(model.holding(base), data) for base, data in batches]


def check_log(log: Log, model: ModelLog, replay: Replay, random: Random) -> None:
    """The log holds what the model holds; now for all that it derives from it."""
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
        raise InvariantViolated("D6", f"{outside} was read from a log of {start} to {end}")
    if log.read(end, bytes_max=100) is not None:
        raise InvariantViolated("D6", f"something was read at the end, {end}")
    if start == end:
        return
    for _ in range(SAMPLES):
        offset = random.randrange(start, end)
        expected = model.holding(offset)
        assert expected is not None
        found = log.read(offset, bytes_max=1)
        data = b"" if found is None else found.file.pread(found.size, found.position)
        if data != expected.data:
            raise InvariantViolated("D2", f"a look-up of {offset} found another batch")
        bound = random.randint(offset, end)
        bounded = log.read(offset, bytes_max=1 << 20, bound=bound)
        size = 0 if bounded is None else bounded.size
        wanted = sum(
            len(batch.data)
            for batch in model.batches
            if batch.last_offset >= offset and batch.end <= bound
        )
        if size > wanted or (size == 0) != (wanted == 0):
            raise InvariantViolated("D6", f"read at {offset} up to {bound}: {size} of {wanted}")


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
        wanted = random.choice(stamps)[1] + random.choice((-1, 0, 1))
        found = log.offset_for_timestamp(wanted)
        expected = model.first_at_or_after(wanted, start)
        got = None if found is None else (found.offset, found.timestamp)
        if got != expected:
            raise InvariantViolated("D9", f"timestamp {wanted}: found {got}, not {expected}")
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
                "D9", f"offset {offset} is of epoch {batch.leader_epoch}, the cache says {found}"
            )
    ends: dict[int, int] = {}
    for batch in visible:
        ends[batch.leader_epoch] = batch.end
    for epoch, end in ends.items():
        if log.epoch_end(epoch) != (epoch, end):
            raise InvariantViolated(
                "D9", f"epoch {epoch} ends at {end}, the cache says {log.epoch_end(epoch)}"
            )


def _check_producers(log: Log, replay: Replay, log_start: int) -> None:
    """What the deleted part of the log said may be forgotten; the rest must be exact."""
    for producer_id, expected in replay.producers.items():
        kept = [batch for batch in expected.batches if batch.base_offset >= log_start]
        if not kept:
            continue
        producer = log.producers.get(producer_id)
        if producer is None:
            raise InvariantViolated("P3", f"producer {producer_id} is forgotten")
        found = [(batch.first_sequence, batch.base_offset) for batch in producer.batches]
        wanted = [(batch.base_sequence, batch.base_offset) for batch in kept]
        if producer.epoch != expected.epoch or found[-len(wanted) :] != wanted:
            raise InvariantViolated(
                "P3",
                f"producer {producer_id}: epoch {producer.epoch}, batches {found}; "
                f"a replay gives epoch {expected.epoch}, {wanted}",
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
        # A transaction whose start was deleted may be forgotten, later ones may not.
        found_start = log.first_unstable_offset
        if found_start != undecided:
            raise InvariantViolated("D9", f"first unstable {found_start}, a replay: {undecided}")


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
            raise InvariantViolated("D9", f"the index names {key} from {first}: never aborted")
