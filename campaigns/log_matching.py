"""D7, M3, D9: what two replicas both call committed is the same, byte for byte; and what a replica
knows of producers is what its log says.

Read from the nodes' own logs, not through any API.
"""

from collections.abc import Iterator
from typing import Any, Final

from campaigns.quorum_watch import broker_of, shared_of
from lograft.simulation.cluster import SimulatedCluster
from lograft.storage.errors import LogClosed
from lograft.storage.producers import ProducerStates
from lograft.storage.recovery import replay_batch
from lograft.wire.batches import iterate_headers, read_records, unpack_header

READ_BYTES: Final = 1 << 20


def unlike_logs(cluster: SimulatedCluster) -> Iterator[str]:
    """What differs, in words."""
    logs: dict[str, list[tuple[int, Any, int]]] = {}
    for node_id, host in cluster.hosts.items():
        shared, broker = shared_of(host.node), broker_of(host.node)
        if shared is None:
            continue
        quorum: Any = shared.quorum
        logs.setdefault("the metadata", []).append(
            (node_id, quorum.log, max(0, quorum.high_watermark))
        )
        for partition in () if broker is None else broker.partitions:
            if partition.is_usable:
                name = f"{partition.topic_partition}"
                logs.setdefault(name, []).append((node_id, partition.log, partition.high_watermark))
    compacted = {
        str(partition.topic_partition): None
        for host in cluster.hosts.values()
        if (broker := broker_of(host.node)) is not None
        for partition in broker.partitions
        if partition.config.cleanup_compact
    }
    for name, replicas in logs.items():
        first_id, first, first_mark = replicas[0]
        for node_id, log, mark in replicas[1:]:
            start = max(first.log_start_offset, log.log_start_offset)
            end = min(first_mark, mark)
            if start >= end:
                continue
            try:
                mine, theirs = batches(first, start, end), batches(log, start, end)
            except LogClosed:  # one of them is stopping, as it was told to
                continue
            if mine != theirs and not (name in compacted and _agree(mine, theirs)):
                yield f"{name}: nodes {first_id} and {node_id} differ between {start} and {end}"


def unlike_replays(cluster: SimulatedCluster) -> Iterator[str]:
    """D9: what a replica knows of producers is what a replay of its log says, whatever was cut,
    recovered or switched since."""
    for node_id, host in cluster.hosts.items():
        broker = broker_of(host.node)
        for partition in () if broker is None else broker.partitions:
            if is_unlike_replay(partition):
                where = f"{partition.topic_partition} on node {node_id}"
                yield f"{where}: what it knows of producers differs from a replay of its log"


def is_unlike_replay(partition: Any) -> bool:
    """Of one replica. Only logs from their very beginning can be replayed."""
    log = partition.log
    if not partition.is_usable or partition.config.cleanup_compact:
        return False
    if log.log_start_offset > 0 or log.segments[0].base_offset > 0:
        return False
    replayed = ProducerStates()
    try:
        data = batches(log, 0, log.end_offset)
    except LogClosed:  # its node is about to end
        return False
    for position, header in iterate_headers(data):
        if header.producer_id >= 0:
            batch = data[position : position + header.size_bytes]
            fields = unpack_header(memoryview(data), position)
            replay_batch(replayed, fields, batch if header.is_control else None)
    return bool(replayed.derived() != log.producers.derived())


def batches(log: Any, start: int, end: int) -> bytes:
    """The bytes of all whole batches from the one that holds `start` on, below `end`."""
    found = bytearray()
    offset = start
    while offset < end:
        part = log.read(offset, bytes_max=READ_BYTES, bound=end)
        if part is None:
            break
        data = part.file.pread(part.size, part.position)
        found += data
        ends = [header.last_offset + 1 for _, header in iterate_headers(data)]
        if not ends or ends[-1] <= offset:
            break
        offset = ends[-1]
    return bytes(found)


def _agree(one: bytes, other: bytes) -> bool:
    """Where cleaners passed: what both keep is the same."""
    mine, theirs = _records(one), _records(other)
    return all(theirs.get(offset, record) == record for offset, record in mine.items())


def _records(data: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    found = {}
    for position, header in iterate_headers(data):
        batch = data[position : position + header.size_bytes]
        for record in read_records(batch, bytes_max=READ_BYTES):
            found[record.offset] = (record.key, record.value)
    return found
