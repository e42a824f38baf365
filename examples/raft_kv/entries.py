"""The log's entries as Kafka's record batches, so that `lograft dump-log` can print them.

A command is the value of a record. A record without a value is a barrier: it changes nothing, but
when it is committed, all records before it are, too. Raft's own entries are control batches, with
Kafka's records for a new leader and for the voters.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from examples.raft_kv.packing import Malformed
from lograft.consensus.types import (
    LeaderChange,
    LogSlice,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from lograft.model.seams import Buffer
from lograft.model.types import Epoch, NodeId, Offset
from lograft.wire import record_frames as frames
from lograft.wire.batches import Record, build_batch, check_crc, iterate_headers, read_records
from lograft.wire.errors import WireError
from lograft.wire.message import Message
from lograft.wire.records import leader_change_message, voters_record

BARRIER: Final = b""
#: Maximum size of a received batch after decompression.
_UNPACKED_BYTES_MAX: Final = 16 << 20


class Entries(NamedTuple):
    """A batch of commands, or of Raft's own entries (then `commands` is empty)."""

    base: Offset
    end: Offset
    epoch: Epoch
    size_bytes: int
    commands: tuple[bytes, ...]
    #: The voters in a control batch, and the offset of the record.
    voters: tuple[Offset, VoterSet] | None


def commands_batch(commands: Sequence[bytes], *, now_ms: int) -> bytearray:
    """The log sets the offset and the epoch."""
    return bytearray(
        build_batch([Record(n, now_ms, None, command) for n, command in enumerate(commands)])
    )


def leader_batch(change: LeaderChange, voters: VoterSet | None, *, now_ms: int) -> bytearray:
    """The first batch of an epoch; the first of the log also contains the voters."""
    message = leader_change_message.LeaderChangeMessage(
        version=0,
        leader_id=change.leader,
        voters=[leader_change_message.Voter(voter_id=node) for node in change.voters],
        granting_voters=[leader_change_message.Voter(voter_id=node) for node in change.granting],
    )
    records = [_control(0, frames.LEADER_CHANGE, message, now_ms)]
    if voters is not None:
        records.append(_control(1, frames.KRAFT_VOTERS, voters_message(voters), now_ms))
    return bytearray(build_batch(records, control=True))


def voters_batch(voters: VoterSet, *, now_ms: int) -> bytearray:
    record = _control(0, frames.KRAFT_VOTERS, voters_message(voters), now_ms)
    return bytearray(build_batch([record], control=True))


def _control(offset: int, kind: int, message: Message, now_ms: int) -> Record:
    key, value = frames.encode_control_key(kind), frames.encode_control_value(kind, message)
    return Record(offset, now_ms, key, value)


def read_entries(data: Buffer) -> Iterator[Entries]:
    """Returns the complete batches in `data` after validation, without an incomplete last one.
    Raises Malformed."""
    view = memoryview(data)
    try:
        for position, header in iterate_headers(view):
            batch = view[position : position + header.size_bytes]
            if not check_crc(batch, 0, header.size_bytes):
                raise Malformed(f"the CRC of the batch at offset {header.base_offset} is wrong")
            records = read_records(batch, bytes_max=_UNPACKED_BYTES_MAX)
            voters = None
            if header.is_control:
                voters = _find_voters(records)
            yield Entries(
                Offset(header.base_offset),
                Offset(header.last_offset + 1),
                Epoch(header.leader_epoch),
                header.size_bytes,
                () if header.is_control else tuple(record.value or b"" for record in records),
                voters,
            )
    except WireError as error:
        raise Malformed(str(error)) from None


def _find_voters(records: Sequence[Record]) -> tuple[Offset, VoterSet] | None:
    found = None
    for record in records:
        if frames.decode_control_key(record.key or b"") == frames.KRAFT_VOTERS:
            message = frames.decode_control_value(frames.KRAFT_VOTERS, record.value or b"")
            assert isinstance(message, voters_record.VotersRecord)
            found = (Offset(record.offset), voters_of(message))
    return found


def slice_of(data: bytes) -> LogSlice:
    """Returns what the core needs to know about batches from a leader. Raises Malformed."""
    entries = list(read_entries(data))
    if not entries:
        raise Malformed(f"{len(data)} bytes do not contain a complete batch")
    for before, after in pairwise(entries):
        if before.end != after.base:
            raise Malformed(f"a batch at {after.base} follows one that ends at {before.end}")
    return LogSlice(
        entries[0].base,
        entries[-1].end,
        epochs_of(entries),
        tuple(entry.voters for entry in entries if entry.voters is not None),
        data[: sum(entry.size_bytes for entry in entries)],
    )


def epochs_of(entries: Sequence[Entries]) -> tuple[tuple[Epoch, Offset], ...]:
    """Returns the start offset of each epoch."""
    epochs: list[tuple[Epoch, Offset]] = []
    for entry in entries:
        if not epochs or epochs[-1][0] != entry.epoch:
            epochs.append((entry.epoch, entry.base))
    return tuple(epochs)


# ── voters ───────────────────────────────────────────────────────────────────────────────────


def voters_message(voters: VoterSet) -> voters_record.VotersRecord:
    return voters_record.VotersRecord(
        version=0,
        voters=[
            voters_record.Voter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    voters_record.Endpoint(name=end.name, host=end.host, port=end.port)
                    for end in voter.endpoints
                ],
                kraft_version_feature=voters_record.KRaftVersionFeature(
                    min_supported_version=voter.kraft_version_min,
                    max_supported_version=voter.kraft_version_max,
                ),
            )
            for voter in voters.voters
        ],
    )


def voters_of(message: voters_record.VotersRecord) -> VoterSet:
    return VoterSet(
        tuple(
            Voter(
                ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id),
                tuple(VoterEndpoint(end.name, end.host, end.port) for end in voter.endpoints),
            )
            for voter in message.voters
        )
    )


def pack_voters(voters: VoterSet) -> bytes:
    return frames.encode_control_value(frames.KRAFT_VOTERS, voters_message(voters))


def unpack_voters(data: bytes) -> VoterSet:
    message = frames.decode_control_value(frames.KRAFT_VOTERS, data)
    assert isinstance(message, voters_record.VotersRecord)
    return voters_of(message)
