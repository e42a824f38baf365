"""Batches for the torture test: plain, idempotent and transactional producers, all codecs,
markers."""

from random import Random
from typing import Final, NamedTuple

from campaigns.storage_model import (
    ABORT_MARKER,
    COMMIT_MARKER,
    MARKER_KEY,
    MARKER_VALUE,
    ModelProducer,
    Replay,
)
from lograft.storage.types import Origin
from lograft.wire.batches import Record, build_batch

IDEMPOTENT_IDS: Final = (1, 2, 3)
TRANSACTIONAL_IDS: Final = (11, 12)
RECORDS_MAX: Final = 4
KEYS: Final = (b"a", b"b", b"c", b"d")
#: Record values: mostly tiny, some longer than a disk sector.
VALUE_BYTES: Final = (0, 1, 10, 40, 100, 700)


class Draft(NamedTuple):
    """A batch as sent by a client: its offsets start at zero."""

    data: bytes
    origin: Origin


class BatchMaker:
    def __init__(self, random: Random, *, tombstone_chance: float = 0.0) -> None:
        self._random = random
        self._tombstone_chance = tombstone_chance
        self._counter = 0

    def draw(self, replay: Replay, now_ms: int, log_start: int) -> Draft:
        """Draws a batch that a log with this producer state must accept."""
        kind = self._random.random()
        if kind < 0.35:
            return Draft(self._batch(now_ms), Origin.CLIENT)
        if kind < 0.7:
            return self._draw_idempotent(replay, now_ms, log_start)
        return self._transactional(replay, now_ms, log_start)

    def repeat(self, replay: Replay, log_start: int) -> bytes | None:
        """Returns a duplicate of one of a producer's last batches, as sent the first time."""
        known = [
            batch
            for producer in replay.producers.values()
            for batch in producer.batches
            if batch.base_offset >= log_start
        ]
        if not known:
            return None
        batch = self._random.choice(known)
        data = bytearray(batch.data)
        data[0:8] = bytes(8)
        return bytes(data)

    def out_of_order(self, replay: Replay, now_ms: int, log_start: int) -> bytes | None:
        """Returns a batch of a known producer with a gap in its sequence."""
        known = [
            (producer_id, producer)
            for producer_id, producer in replay.producers.items()
            if producer_id in IDEMPOTENT_IDS
            and producer.batches
            and producer.batches[-1].base_offset >= log_start
        ]
        if not known:
            return None
        producer_id, producer = self._random.choice(known)
        return self._batch(
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.next_sequence + 1 + self._random.randrange(5),
        )

    def draw_fenced(self, replay: Replay, now_ms: int, log_start: int) -> bytes | None:
        """Returns a batch of an older epoch of a known producer."""
        known = [
            (producer_id, producer)
            for producer_id, producer in replay.producers.items()
            if producer.epoch > 0
            and producer.batches
            and producer.batches[-1].base_offset >= log_start
        ]
        if not known:
            return None
        producer_id, producer = self._random.choice(known)
        return self._batch(
            now_ms, producer_id=producer_id, producer_epoch=producer.epoch - 1, base_sequence=0
        )

    def _draw_idempotent(self, replay: Replay, now_ms: int, log_start: int) -> Draft:
        producer_id = self._random.choice(IDEMPOTENT_IDS)
        epoch, sequence = self._next(replay.producers.get(producer_id), log_start)
        data = self._batch(
            now_ms, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return Draft(data, Origin.CLIENT)

    def _next(self, producer: ModelProducer | None, log_start: int) -> tuple[int, int]:
        if producer is None:
            return 0, 0
        # The log may have forgotten sequences of deleted batches: start a new epoch.
        is_forgotten = not producer.batches or producer.batches[-1].base_offset < log_start
        if is_forgotten or (self._random.random() < 0.1 and producer.transaction_start < 0):
            return producer.epoch + 1, 0
        return producer.epoch, producer.next_sequence

    def _transactional(self, replay: Replay, now_ms: int, log_start: int) -> Draft:
        producer_id = self._random.choice(TRANSACTIONAL_IDS)
        producer = replay.producers.get(producer_id)
        if producer is not None and producer.transaction_start >= 0 and self._random.random() < 0.4:
            return Draft(self._marker(producer_id, producer.epoch, now_ms), Origin.COORDINATOR)
        epoch, sequence = self._next(producer, log_start)
        data = self._batch(
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return Draft(data, Origin.CLIENT)

    def _marker(self, producer_id: int, epoch: int, now_ms: int) -> bytes:
        kind = self._random.choice((ABORT_MARKER, COMMIT_MARKER))
        record = Record(0, now_ms, MARKER_KEY.pack(0, kind), MARKER_VALUE.pack(0, 0))
        return build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=epoch,
            control=True,
            transactional=True,
        )

    def _batch(
        self,
        now_ms: int,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        random = self._random
        records = []
        for offset in range(random.randint(1, RECORDS_MAX)):
            self._counter += 1
            filling = random.choice(VALUE_BYTES)
            value: bytes | None = f"{self._counter}:".encode() + random.randbytes(filling)
            if self._tombstone_chance and random.random() < self._tombstone_chance:
                value = None
            timestamp = now_ms - random.randrange(2_000)
            records.append(Record(offset, timestamp, random.choice(KEYS), value))
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            compression=random.choice((0, 0, 0, 1, 2, 3, 4)),
            transactional=transactional,
        )
