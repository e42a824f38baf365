"""`lograft dump-log`: prints the files of a log in the format of Kafka's DumpLogSegments."""

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from lograft.cli.record_text import DECODERS, control_text
from lograft.model.errors import LograftError
from lograft.wire import codec
from lograft.wire.batches import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    check_crc,
    read_header,
    read_records,
)
from lograft.wire.errors import MalformedMessage
from lograft.wire.records.producer_snapshot import ProducerEntry, ProducerSnapshot

INDENT: Final = "|"
CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
INDEX_ENTRY: Final = struct.Struct(">ii")
TIME_INDEX_ENTRY: Final = struct.Struct(">qi")
TXN_INDEX_ENTRY: Final = struct.Struct(">hqqqq")
#: Decompressed size of one batch: a limit against decompression bombs.
BATCH_BYTES_MAX: Final = 1 << 30
SNAPSHOT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    print_records: bool = False
    print_values: bool = False
    #: A key of record_text.DECODERS.
    decoder: str | None = None
    skip_record_metadata: bool = False
    bytes_max: int = 2**31 - 1
    index_sanity_check: bool = False


def dump_files(paths: list[str], options: DumpOptions) -> int:
    """Prints the files; returns 1 if there is a problem with any of them."""
    problems: list[str] = []
    for path in paths:
        print(f"Dumping {path}")
        try:
            for line in dump_file(path, options, problems):
                print(line)
        except BrokenPipeError:
            raise  # The reader of the output has closed the pipe; the file is readable.
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        except LograftError as error:
            problems.append(f"{path}: {error}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def dump_file(path: str, options: DumpOptions, problems: list[str]) -> Iterator[str]:
    match Path(path).suffix:
        case ".log" | ".checkpoint":
            yield from dump_segment(path, options, problems)
        case ".index":
            yield from dump_index(path, options, problems)
        case ".timeindex":
            yield from dump_time_index(path, options, problems)
        case ".snapshot":
            yield from dump_producers(path)
        case ".txnindex":
            yield from dump_transactions(path, problems)
        case _:
            problems.append(f"Ignoring unknown file {path}")


# ── segments and snapshots ───────────────────────────────────────────────────────────────────


def dump_segment(path: str, options: DumpOptions, problems: list[str]) -> Iterator[str]:
    yield _title_of(path)
    pairs = []
    last_offset = -1
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        end = 0
        for position, header, batch in read_batches(file, min(size, options.bytes_max)):
            is_valid = check_crc(batch, 0, header.size_bytes)
            yield batch_line(position, header, is_valid=is_valid)
            end = position + header.size_bytes
            if not options.print_records:
                continue
            try:
                records = read_records(batch, bytes_max=BATCH_BYTES_MAX)
                for record in records:
                    if last_offset >= 0 and record.offset != last_offset + 1:
                        pairs.append((last_offset, record.offset))
                    last_offset = record.offset
                    yield record_line(record, header, options)
            except MalformedMessage as error:
                problems.append(f"{path}: the batch at position {position}: {error}")
    if end < size and size <= options.bytes_max:
        problems.append(f"Found {size - end} invalid bytes at the end of {Path(path).name}")
    # Compaction leaves gaps, so they are reported but are not an error.
    if pairs:
        yield f"Non-consecutive offsets in {path}"
        yield from (f"  {before} is followed by {after}" for before, after in pairs)


def _title_of(path: str) -> str:
    name = Path(path).name
    if name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    if (match := re.fullmatch(r"(\d+)-(\d+)\.checkpoint", name)) is not None:
        return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"
    return f"Log starting offset: {base_offset_of(path)}"


def base_offset_of(path: str) -> int:
    """Returns the base offset in the file's name; 0 if the name does not start with a number."""
    match = re.match(r"\d+", Path(path).name)
    return int(match[0]) if match is not None else 0


def read_batches(file: BinaryIO, limit: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Yields (position, header, bytes) of the complete batches up to the first invalid one."""
    position = 0
    while position + HEADER_SIZE <= limit:
        file.seek(position)
        head = file.read(HEADER_SIZE)
        try:
            header = read_header(head)
        except MalformedMessage:
            return
        if header.size_bytes < HEADER_SIZE or position + header.size_bytes > limit:
            return
        yield position, header, head + file.read(header.size_bytes - HEADER_SIZE)
        position += header.size_bytes


def batch_line(position: int, header: BatchHeader, *, is_valid: bool) -> str:
    kind = "LogAppendTime" if header.timestamp_type_log_append else "CreateTime"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
        f" count: {header.record_count} baseSequence: {header.base_sequence}"
        f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch}"
        f" isTransactional: {_bool_text(header.is_transactional)}"
        f" isControl: {_bool_text(header.is_control)}"
        f" deleteHorizonMs: {_optional_text(header.delete_horizon_ms)} position: {position}"
        f" {kind}: {header.max_timestamp} size: {header.size_bytes} magic: {header.magic}"
        f" compresscodec: {CODECS.get(header.compression, header.compression)}"
        f" crc: {header.crc & 0xFFFFFFFF} isvalid: {_bool_text(is_valid)}"
    )


def record_line(record: Record, header: BatchHeader, options: DumpOptions) -> str:
    parts = []
    if not options.skip_record_metadata:
        parts.append(_record_metadata(record, header))
        if header.is_control:
            parts.append(control_text(record))
    if options.print_values and not header.is_control:
        key, value = DECODERS[options.decoder](record)
        parts += [f"key: {key}"] if key is not None else []
        parts += [f"payload: {value}"] if value is not None else []
    return " ".join([INDENT, *parts]) if parts else ""


def _record_metadata(record: Record, header: BatchHeader) -> str:
    kind, timestamp = "CreateTime", record.timestamp
    if header.timestamp_type_log_append:
        kind, timestamp = "LogAppendTime", header.max_timestamp
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    keys = ",".join(header.key for header in record.headers)
    return (
        f"offset: {record.offset} {kind}: {timestamp} keySize: {_size_of(record.key)}"
        f" valueSize: {_size_of(record.value)} sequence: {sequence} headerKeys: [{keys}]"
    )


def _size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _optional_text(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


# ── indexes ──────────────────────────────────────────────────────────────────────────────────


def dump_index(path: str, options: DumpOptions, problems: list[str]) -> Iterator[str]:
    base = base_offset_of(path)
    entries = list(_read_entries(path, INDEX_ENTRY, problems))
    if not entries:
        yield f"{path} is empty."
        return
    if options.index_sanity_check:
        yield from _check_order(path, [relative for relative, _ in entries], problems)
        return
    log = _batches_by_position(path)
    mismatches = []
    for number, (relative, position) in enumerate(entries):
        if number and relative == 0:
            # The unused rest of a preallocated file.
            break
        header = log.get(position)
        if log and (header is None or header.last_offset != base + relative):
            found = -1 if header is None else header.last_offset
            mismatches.append(f"  Index offset: {base + relative}, log offset: {found}")
        yield f"offset: {base + relative} position: {position}"
    if mismatches:
        problems += [f"Mismatches in :{path}", *mismatches]


def dump_time_index(path: str, options: DumpOptions, problems: list[str]) -> Iterator[str]:
    base = base_offset_of(path)
    entries = list(_read_entries(path, TIME_INDEX_ENTRY, problems))
    if options.index_sanity_check:
        yield from _check_order(path, [timestamp for timestamp, _ in entries], problems)
        return
    log = sorted(_batches_by_position(path).values(), key=lambda header: header.base_offset)
    found: dict[str, list[str]] = {}
    previous = -1
    for number, (timestamp, relative) in enumerate(entries):
        offset = base + relative
        if number and relative == 0:
            break
        if timestamp < previous:
            found.setdefault("Found out of order timestamp in :", []).append(
                f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
            )
        previous = max(previous, timestamp)
        batch = next((header for header in log if header.last_offset >= offset), None)
        if log and batch is None:
            found.setdefault("The following indexed offsets are not found in :", []).append(
                f"  Indexed offset: {offset}, found log offset: -1"
            )
        elif batch is not None and batch.max_timestamp != timestamp:
            found.setdefault("Found timestamp mismatch in :", []).append(
                f"  Index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}"
            )
        yield f"timestamp: {timestamp} offset: {offset}"
    for title, lines in found.items():
        problems += [f"{title}{path}", *lines]


def _read_entries(path: str, form: struct.Struct, problems: list[str]) -> Iterator[tuple[int, int]]:
    data = Path(path).read_bytes()
    complete = len(data) - len(data) % form.size
    if complete < len(data):
        problems.append(f"{path} has {len(data)} bytes, not a multiple of {form.size}")
    yield from form.iter_unpack(data[:complete])


def _check_order(path: str, keys: list[int], problems: list[str]) -> Iterator[str]:
    used = [key for number, key in enumerate(keys) if number == 0 or key != 0]
    if any(later < earlier for earlier, later in pairwise(used)):
        problems.append(f"{path} is corrupt: its entries are not in ascending order")
    else:
        yield f"{path} passed sanity check."


def _batches_by_position(index_path: str) -> dict[int, BatchHeader]:
    """Returns the batches of an index's .log file by position; empty if there is no such file."""
    log = Path(index_path).with_suffix(".log")
    if not log.exists():
        return {}
    with log.open("rb") as file:
        return {position: header for position, header, _ in read_batches(file, log.stat().st_size)}


# ── producers and transactions ───────────────────────────────────────────────────────────────


def dump_producers(path: str) -> Iterator[str]:
    data = Path(path).read_bytes()
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version != SNAPSHOT_VERSION:
        raise MalformedMessage(f"not a producer snapshot of version {SNAPSHOT_VERSION}")
    snapshot, _ = codec.read(ProducerSnapshot, SNAPSHOT_VERSION, data, 2)
    for entry in snapshot.producer_entries:
        yield _producer_line(entry)


def _producer_line(entry: ProducerEntry) -> str:
    first_offset = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch}"
        f" currentTxnFirstOffset: {_optional_text(first_offset if first_offset >= 0 else None)}"
        f" lastTimestamp: {entry.timestamp} "
    )
    if entry.last_offset < 0:
        return line.rstrip()
    first_sequence = (entry.last_sequence - entry.offset_delta) & 0x7FFFFFFF
    return (
        f"{line}firstSequence: {first_sequence} lastSequence: {entry.last_sequence}"
        f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
        f" timestamp: {entry.timestamp}"
    )


def dump_transactions(path: str, problems: list[str]) -> Iterator[str]:
    data = Path(path).read_bytes()
    complete = len(data) - len(data) % TXN_INDEX_ENTRY.size
    if complete < len(data):
        problems.append(f"Found {len(data) - complete} invalid bytes at the end of {path}")
    for entry in TXN_INDEX_ENTRY.iter_unpack(data[:complete]):
        version, producer_id, first, last, stable = entry
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first}"
            f" lastOffset: {last} lastStableOffset: {stable}"
        )
