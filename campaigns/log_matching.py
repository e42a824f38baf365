"""D7, M3, D9: the committed part of two replicas is equal, byte for byte, and a replica's producer
state matches its log. Reads the nodes' logs directly, without requests."""

from collections.abc import Iterator
from typing import Any, Final

from campaigns.quorum_watch import broker_of, shared_of
from lograft.simulation.cluster import SimulatedCluster
from lograft.storage.errors import LogClosed
from lograft.storage.producers import ProducerStates
from lograft.storage.recovery import replay_batch
from lograft.wire.batches import iterate_headers, read_records, unpack_header

READ_BYTES: Final = 1 << 20


def find_log_differences(cluster: SimulatedCluster) -> Iterator[str]:
    """Yields a description of each difference."""
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
                first_data, data = batches(first, start, end), batches(log, start, end)
            except LogClosed:  # its node is stopping
                continue
            if first_data != data and not (name in compacted and _agree(first_data, data)):
                yield f"{name}: nodes {first_id} and {node_id} differ between {start} and {end}"


def find_replay_differences(cluster: SimulatedCluster) -> Iterator[str]:
    """D9: a replica's producer state equals a replay of its log, after any truncation, recovery or
    mode switch. Yields a description of each difference."""
    for node_id, host in cluster.hosts.items():
        broker = broker_of(host.node)
        for partition in () if broker is None else broker.partitions:
            if differs_from_replay(partition):
                where = f"{partition.topic_partition} on node {node_id}"
                yield f"{where}: its producer state differs from a replay of its log"


def differs_from_replay(partition: Any) -> bool:
    """Returns whether a replica's producer state differs from a replay of its log. Only logs that
    start at offset 0 can be replayed."""
    log = partition.log
    if not partition.is_usable or partition.config.cleanup_compact:
        return False
    if log.log_start_offset > 0 or log.segments[0].base_offset > 0:
        return False
    replayed = ProducerStates()
    try:
        data = batches(log, 0, log.end_offset)
    except LogClosed:  # its node is stopping
        return False
    for position, header in iterate_headers(data):
        if header.producer_id >= 0:
            batch = data[position : position + header.size_bytes]
            fields = unpack_header(memoryview(data), position)
            replay_batch(replayed, fields, batch if header.is_control else None)
    return bool(replayed.derived_state() != log.producers.derived_state())


def batches(log: Any, start: int, end: int) -> bytes:
    """Returns the bytes of all complete batches below `end`, from the batch that contains
    `start`."""
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


def _agree(data: bytes, other_data: bytes) -> bool:
    """Returns whether the records that both logs kept after compaction are equal."""
    records, others = _records(data), _records(other_data)
    return all(others.get(offset, record) == record for offset, record in records.items())


def _records(data: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    found = {}
    for position, header in iterate_headers(data):
        batch = data[position : position + header.size_bytes]
        for record in read_records(batch, bytes_max=READ_BYTES):
            found[record.offset] = (record.key, record.value)
    return found
