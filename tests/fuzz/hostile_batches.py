"""Record batches of regular and of hostile clients."""

import random
import struct
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from lograft.wire.batches import CRC_START, HEADER, HEADER_SIZE, Record, RecordHeader, build_batch
from lograft.wire.compression import compress

#: Fields of the batch header: name, position, struct format.
_FIELDS: Final = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
_EDGES: Final = {
    ">b": (-128, -1, 0, 1, 2, 3, 127),
    ">h": (-32768, -1, 0, 1, 5, 7, 0x18, 0x30, 0x40, 32767),
    ">i": (-(2**31), -2, -1, 0, 1, 49, 1000, 2**31 - 13, 2**31 - 1),
    ">I": (0, 1, 2**32 - 1),
    ">q": (-(2**63), -2, -1, 0, 1, 2**31, 2**62, 2**63 - 1),
}
CODECS: Final = range(5)
#: The smallest record: length 6, no attributes, deltas 0, null key, null value, no headers.
SMALLEST_RECORD: Final = bytes([12, 0, 0, 0, 1, 1, 0])


def put(batch: bytearray, field: str, value: int) -> None:
    position, form = _FIELDS[field]
    struct.pack_into(form, batch, position, value)


def seal(batch: bytearray) -> bytes:
    """Sets the right CRC: the damage is deliberate, not a transmission error."""
    put(batch, "crc", crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def framed(
    payload: bytes, *, codec: int = 0, count: int = 1, timestamp: int = 0, attributes: int = 0
) -> bytes:
    """Wraps any bytes in a batch with a matching header."""
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch, 0, 0, HEADER_SIZE - 12 + len(payload), -1, 2, 0, codec | attributes, count - 1,
        timestamp, timestamp, -1, -1, -1, count,
    )  # fmt: skip
    return seal(batch + payload)


def bomb(codec: int, *, unpacked_bytes: int, timestamp: int = 0) -> bytes:
    """Returns a small batch that decompresses to many small records."""
    count = unpacked_bytes // len(SMALLEST_RECORD)
    return framed(
        compress(codec, SMALLEST_RECORD * count), codec=codec, count=count, timestamp=timestamp
    )


def one_record_bomb(codec: int, *, value_bytes: int, timestamp: int = 0) -> bytes:
    """Returns a small batch that decompresses to a single record with an enormous value."""
    record = Record(0, timestamp, b"key", bytes(value_bytes))
    return build_batch([record], compression=codec)


class HostileBatches:
    """`wall_ms` is the node's clock: timestamps near it are plausible."""

    def __init__(self, chance: random.Random, *, wall_ms: Callable[[], int]) -> None:
        self._chance = chance
        self._wall_ms = wall_ms
        #: Next sequence by producer id: regular idempotent producers continue there.
        self._sequences: dict[int, int] = {}

    def any(self) -> bytes:
        kinds = (
            (self.honest, 8),
            (self.idempotent, 4),
            (self.lying_header, 4),
            (self.lying_payload, 3),
            (self.nested_garbage, 3),
            (self.several, 1),
            (self.noise, 1),
        )
        makers = [kind for kind, _ in kinds]
        (make,) = self._chance.choices(makers, [weight for _, weight in kinds])
        return make()

    def honest(self) -> bytes:
        return build_batch(self._records(), compression=self._chance.choice(CODECS))

    def honest_with_keys(self) -> bytes:
        """Every topic accepts it, also compacted ones."""
        chance = self._chance
        records = [
            Record(index, self._wall_ms(), b"%d" % chance.randrange(50), chance.randbytes(20))
            for index in range(chance.choice((1, 3, 20)))
        ]
        return build_batch(records, compression=chance.choice(CODECS))

    def idempotent(self) -> bytes:
        """Mostly the next sequence; otherwise a duplicate, a gap, or another epoch."""
        chance = self._chance
        producer_id = chance.choice((1, 2, 1000, 2**62))
        records = self._records()
        sequence = self._sequences.get(producer_id, 0)
        step = chance.random()
        if step < 0.1:
            sequence = max(0, sequence - len(records) * chance.randrange(1, 8))
        elif step < 0.15:
            sequence = chance.choice((0, sequence ^ 1, 2**31 - 1, 2**31 - 3))
        self._sequences[producer_id] = (sequence + len(records)) & 0x7FFF_FFFF
        epoch = 0 if chance.random() < 0.9 else chance.choice((0, 1, 5, 32767, -1))
        return build_batch(
            records,
            compression=chance.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def lying_header(self) -> bytes:
        """One to three header fields of a valid batch are changed; the CRC usually matches."""
        chance = self._chance
        batch = bytearray(self.honest())
        for field in chance.sample(sorted(_FIELDS), chance.randint(1, 3)):
            put(batch, field, chance.choice(_EDGES[_FIELDS[field][1]]))
        return seal(batch) if chance.random() < 0.8 else bytes(batch)

    def lying_payload(self) -> bytes:
        """Lengths, deltas and counts of the records are corrupted, everything else is valid."""
        chance = self._chance
        batch = bytearray(build_batch(self._records()))
        payload = bytearray(batch[HEADER_SIZE:])
        for _ in range(chance.randint(1, 3)):
            payload[chance.randrange(len(payload))] = chance.choice((0, 1, 2, 127, 128, 254, 255))
        codec = chance.choice(CODECS)
        count = struct.unpack_from(">i", batch, 57)[0]
        return framed(
            compress(codec, bytes(payload)), codec=codec, count=count, timestamp=self._wall_ms()
        )

    def nested_garbage(self) -> bytes:
        """The compressed data is noise, truncated, of another codec, or a batch in a batch."""
        chance = self._chance
        codec = chance.choice(CODECS)
        count = chance.choice((1, 2, 3, 1000))
        match chance.randrange(4):
            case 0:
                payload = chance.randbytes(chance.randrange(300))
            case 1:
                packed = compress(codec, SMALLEST_RECORD * 500)
                payload = packed[: chance.randrange(len(packed))]
            case 2:
                payload = compress(chance.choice(CODECS), SMALLEST_RECORD * count)
            case _:
                payload = compress(codec, compress(codec, self.honest()))
        return framed(payload, codec=codec, count=count, timestamp=self._wall_ms())

    def several(self) -> bytes:
        return self.honest() + self.honest()

    def noise(self) -> bytes:
        chance = self._chance
        batch = self.honest()
        return chance.choice((b"", b"\0", batch[: chance.randrange(len(batch))], batch + b"\0\0"))

    def _records(self) -> list[Record]:
        chance = self._chance
        now_ms = self._wall_ms()
        timestamp = chance.choice((now_ms, now_ms - 1000, 0, -1, now_ms + 10))
        if chance.random() < 0.05:
            timestamp = chance.choice((2**62, -(2**62), now_ms + 2 * 86_400_000))
        return [
            Record(
                index,
                timestamp + (index if timestamp >= 0 else 0),
                chance.choice((None, b"", b"k", chance.randbytes(8))),
                chance.choice((None, b"", chance.randbytes(chance.randrange(400)), bytes(3000))),
                (RecordHeader("h", b"x"),) if chance.random() < 0.1 else (),
            )
            for index in range(chance.choice((1, 1, 2, 5, 30)))
        ]
