"""Builders for logs and batches."""

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lograft.model.seams import Disk
from lograft.model.types import Offset, TopicPartition
from lograft.storage.log import Log
from lograft.storage.types import FixedLogConfig, LogConfig, RecoveryPlan
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import Record, build_batch, iterate_headers, read_records

LOG_DIR = "data"
DIRECTORY = f"{LOG_DIR}/t-0"
NOW_MS = 1_700_000_000_000


def make_batch(
    values: Sequence[bytes] = (b"v",),
    *,
    timestamp: int = NOW_MS,
    key: bytes | None = None,
    **options: Any,
) -> memoryview:
    records = [Record(i, timestamp, key, value) for i, value in enumerate(values)]
    return memoryview(bytearray(build_batch(records, **options)))


def marker_key(*, commit: bool) -> bytes:
    return struct.pack(">hh", 0, commit)


def marker_value(coordinator_epoch: int) -> bytes:
    return struct.pack(">hi", 0, coordinator_epoch)


def make_marker(
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
) -> memoryview:
    record = Record(0, timestamp, marker_key(commit=commit), marker_value(coordinator_epoch))
    return memoryview(
        bytearray(
            build_batch(
                [record],
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=True,
                control=True,
            )
        )
    )


def make_disk() -> MemoryDisk:
    """A disk whose log dir survives a power loss."""
    disk = MemoryDisk()
    disk.make_dir(LOG_DIR)
    disk.fsync_dir("")
    return disk


def open_log(
    disk: Disk,
    config: LogConfig | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start: int = 0,
    now_ms: int = NOW_MS,
    directory: str = DIRECTORY,
) -> Log:
    return Log.open(
        disk,
        directory,
        topic_partition=TopicPartition("t", 0),
        topic_id=UUID(int=7),
        config=config or FixedLogConfig(),
        now_ms=now_ms,
        recovery=RecoveryPlan(
            clean=clean, recovery_point=Offset(recovery_point), log_start=Offset(log_start)
        ),
    )


def flush(log: Log) -> None:
    plan = log.flush_plan()
    plan.run()
    log.mark_durable(plan)


def read_all(log: Log, start: int | None = None, bound: int | None = None) -> list[Record]:
    """All records, through `read`, in small steps."""
    offset = log.log_start_offset if start is None else start
    records: list[Record] = []
    limit = log.end_offset if bound is None else bound
    while True:
        piece = log.read(offset, bytes_max=300, bound=limit)
        if piece is None:
            return records
        data = piece.file.pread(piece.size, piece.position)
        advanced = offset
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_bytes]
            if not header.is_control:
                found = read_records(batch, bytes_max=1 << 20)
                records += [r for r in found if r.offset >= offset]
            advanced = header.last_offset + 1
        assert advanced > offset, (offset, piece)
        offset = advanced
