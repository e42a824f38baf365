"""Kinds of damage to the files of a stopped node, each a function of a folder."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from lograft.wire.batches import BatchHeader, iterate_headers

DamageOutcome = Literal["whole", "shorter", "offline", "served corrupt", "stuck", "wrong"]
#: Arguments: the partition's folder, a random generator, and the recovery point of the log.
Damaging = Callable[[Path, random.Random, int], None]
WHOLE: Final[frozenset[DamageOutcome]] = frozenset(("whole",))
SHORTER: Final[frozenset[DamageOutcome]] = frozenset(("whole", "shorter"))
#: Damage below the recovery point is not a torn tail, so the log must not be truncated.
OFFLINE: Final[frozenset[DamageOutcome]] = frozenset(("whole", "offline"))
#: The CRC does not cover base offset and epoch, and a lost file looks like one deleted by
#: retention. As in Kafka, a sealed segment is not verified before it is served.
UNDETECTED: Final[frozenset[DamageOutcome]] = frozenset(("whole", "offline", "shorter", "wrong"))
#: As in Kafka, Fetch returns the bytes of sealed segments unverified: the client checks the CRC.
SEALED: Final[frozenset[DamageOutcome]] = frozenset(("whole", "offline", "served corrupt", "stuck"))


class Damage(NamedTuple):
    name: str
    apply: Damaging
    #: Outcomes that are allowed if the node was killed.
    allowed: frozenset[DamageOutcome]
    #: Outcomes that are allowed after a clean shutdown, if they differ: then all data was fsynced.
    allowed_when_clean: frozenset[DamageOutcome] | None = None

    def allows(self, outcome: DamageOutcome, *, clean: bool) -> bool:
        if clean and self.allowed_when_clean is not None:
            return outcome in self.allowed_when_clean
        return outcome in self.allowed


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))


def batches(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(iterate_headers(path.read_bytes()))


def flip(path: Path, position: int, mask: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def flip_anywhere(path: Path, chance: random.Random) -> None:
    if path.stat().st_size:
        flip(path, chance.randrange(path.stat().st_size), 1 << chance.randrange(8))


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def overwrite(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(max(path.stat().st_size, 100)))


# ── the log ──────────────────────────────────────────────────────────────────────────────────


def flip_body_of_tail(folder: Path, chance: random.Random, recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    position, header = chance.choice(
        [b for b in batches(log) if b[1].base_offset >= recovery_point]
    )
    flip(log, position + chance.randrange(61, header.size_bytes))


def flip_length_of_tail(folder: Path, chance: random.Random, recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    position, _header = chance.choice(
        [b for b in batches(log) if b[1].base_offset >= recovery_point]
    )
    flip(log, position + 8 + chance.randrange(4))


def flip_crc_of_tail(folder: Path, chance: random.Random, recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    position, _header = chance.choice(
        [b for b in batches(log) if b[1].base_offset >= recovery_point]
    )
    flip(log, position + 17 + chance.randrange(4))


def cut_tail(folder: Path, chance: random.Random, recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    first = min(position for position, b in batches(log) if b.base_offset >= recovery_point)
    cut(log, chance.randrange(first, log.stat().st_size))


def zeros_after_tail(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    log.write_bytes(log.read_bytes() + bytes(chance.randrange(1, 5_000)))


def garbage_after_tail(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    log.write_bytes(log.read_bytes() + chance.randbytes(chance.randrange(1, 5_000)))


def last_batch_twice(folder: Path, _chance: random.Random, _recovery_point: int) -> None:
    log = files(folder, ".log")[-1]
    position, header = batches(log)[-1]
    data = log.read_bytes()
    log.write_bytes(data + data[position : position + header.size_bytes])


def flip_body_of_sealed(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    log = chance.choice(files(folder, ".log")[:-2])
    position, header = chance.choice(batches(log))
    flip(log, position + chance.randrange(61, header.size_bytes))


def flip_length_of_sealed(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    log = chance.choice(files(folder, ".log")[:-2])
    position, _header = chance.choice(batches(log))
    flip(log, position + 8 + chance.randrange(4))


def flip_offset_of_sealed(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    log = chance.choice(files(folder, ".log")[:-2])
    position, _header = chance.choice(batches(log))
    flip(log, position + chance.randrange(8))


def cut_sealed(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    log = chance.choice(files(folder, ".log")[:-2])
    cut(log, chance.randrange(log.stat().st_size))


def lose_sealed(folder: Path, chance: random.Random, _recovery_point: int) -> None:
    chance.choice(files(folder, ".log")[1:-2]).unlink()


def lose_first(folder: Path, _chance: random.Random, _recovery_point: int) -> None:
    files(folder, ".log")[0].unlink()


def lose_last(folder: Path, _chance: random.Random, _recovery_point: int) -> None:
    files(folder, ".log")[-1].unlink()


# ── files that can be rebuilt from the log ───────────────────────────────────────────────────


def each(suffix: str, change: Callable[[Path, random.Random], None]) -> Damaging:
    def apply(folder: Path, chance: random.Random, _recovery_point: int) -> None:
        for path in files(folder, suffix):
            change(path, chance)

    return apply


def cut_anywhere(path: Path, chance: random.Random) -> None:
    cut(path, chance.randrange(path.stat().st_size + 1))


def lose(path: Path, _chance: random.Random) -> None:
    path.unlink()


def empty(path: Path, _chance: random.Random) -> None:
    path.write_bytes(b"")


def partition_damages() -> list[Damage]:
    found = [
        Damage("nothing", lambda _folder, _chance, _point: None, WHOLE),
        Damage("flip body of tail", flip_body_of_tail, SHORTER, SEALED),
        Damage("flip length of tail", flip_length_of_tail, SHORTER, SEALED),
        Damage("flip crc of tail", flip_crc_of_tail, SHORTER, SEALED),
        Damage("cut tail", cut_tail, SHORTER, OFFLINE),
        Damage("zeros after tail", zeros_after_tail, WHOLE),
        Damage("garbage after tail", garbage_after_tail, WHOLE),
        Damage("last batch twice", last_batch_twice, WHOLE),
        Damage("flip body of sealed", flip_body_of_sealed, SEALED),
        Damage("flip length of sealed", flip_length_of_sealed, SEALED),
        Damage("flip offset of sealed", flip_offset_of_sealed, UNDETECTED),
        Damage("cut sealed", cut_sealed, SEALED),
        Damage("lose sealed", lose_sealed, UNDETECTED),
        Damage("lose first", lose_first, UNDETECTED),
        Damage("lose last", lose_last, SHORTER, OFFLINE),
    ]
    for suffix in (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"):
        found += [
            Damage(f"flip {suffix}", each(suffix, flip_anywhere), WHOLE),
            Damage(f"cut {suffix}", each(suffix, cut_anywhere), WHOLE),
            Damage(f"overwrite {suffix}", each(suffix, overwrite), WHOLE),
            Damage(f"empty {suffix}", each(suffix, empty), WHOLE),
            Damage(f"lose {suffix}", each(suffix, lose), WHOLE),
        ]
    found += [
        Damage("overwrite partition.metadata", each("partition.metadata", overwrite), OFFLINE),
        Damage("lose partition.metadata", each("partition.metadata", lose), WHOLE),
    ]
    return found
