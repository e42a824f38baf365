"""The folder of a server of the key-value example: what is accepted, repaired or rejected."""

from uuid import UUID

import pytest

from examples.raft_kv import entries, folder
from examples.raft_kv.folder import FolderDamaged, Loaded
from lograft.consensus.types import HardState, LogEnd, ReplicaKey, SnapshotId, VoterSet
from lograft.model.errors import InvalidInput
from lograft.model.types import NO_EPOCH, Epoch, NodeId, Offset
from lograft.runtime.randomness import SystemRandomness
from lograft.storage.log import Log
from lograft.storage.types import Origin
from lograft.testing.memory import MemoryDisk

PATH = "data"
VOTERS = VoterSet.of([ReplicaKey(NodeId(1)), ReplicaKey(NodeId(2))])


def load(disk: MemoryDisk, node_id: int = 1) -> Loaded:
    if not disk.is_dir(PATH):
        disk.make_dir(PATH)
    randomness = SystemRandomness()
    return folder.load(
        disk, PATH, NodeId(node_id), segment_bytes=1_000, randomness=randomness, now_ms=0
    )


def append(log: Log, epoch: int, count: int) -> None:
    for _ in range(count):
        data = entries.commands_batch([bytes(100)], now_ms=0)
        log.append_as_leader(memoryview(data), leader_epoch=epoch, now_ms=0, origin=Origin.RAFT)
    plan = log.flush_plan()
    plan.run()
    log.mark_durable(plan)


def snapshot(disk: MemoryDisk, end: int, epoch: int) -> SnapshotId:
    id_ = SnapshotId(Offset(end), Epoch(epoch))
    folder.write_snapshot(disk, PATH, id_, VOTERS, b"state at %d" % end)
    return id_


def test_an_empty_folder() -> None:
    disk = MemoryDisk()
    first = load(disk)
    assert first.me.node_id == 1
    assert (first.snapshot, first.hard_state, first.epochs) == (None, HardState(), ())
    assert first.log_start == LogEnd(NO_EPOCH, Offset(0))
    assert load(disk).me == first.me
    with pytest.raises(InvalidInput, match="belongs to server 1, not to 2"):
        load(disk, 2)


def test_the_log_goes_on_behind_the_newest_snapshot() -> None:
    disk = MemoryDisk()
    log = load(disk).log
    append(log, 1, 10)
    append(log, 3, 10)
    old, new = snapshot(disk, 5, 1), snapshot(disk, 12, 3)
    loaded = load(disk)
    assert loaded.snapshot is not None
    assert (loaded.snapshot.id, loaded.snapshot.state) == (new, b"state at 12")
    assert loaded.snapshot.voters == VOTERS
    assert list(loaded.snapshots) == [old, new]
    assert loaded.log.end_offset == 20
    assert loaded.log_start == LogEnd(Epoch(1), Offset(5))
    assert loaded.epochs == ((Epoch(1), Offset(5)), (Epoch(3), Offset(10)))


def test_a_log_without_its_first_segments_begins_at_a_snapshot() -> None:
    disk = MemoryDisk()
    log = load(disk).log
    append(log, 1, 30)
    log.advance_start(Offset(22))
    log.delete_old_segments(0, Offset(30))
    first = log.segments[0].base_offset
    assert 0 < first < 22
    with pytest.raises(FolderDamaged, match="no snapshot contains what was before"):
        load(disk)
    snapshot(disk, 22, 1)
    snapshot(disk, 25, 1)
    loaded = load(disk)
    assert loaded.log_start == LogEnd(Epoch(1), Offset(22))
    assert loaded.epochs == ((Epoch(1), Offset(22)),)


@pytest.mark.parametrize("length", [4, 12, 20], ids=["shorter", "as long", "longer"])
def test_an_interrupted_installation_is_finished(length: int) -> None:
    """The log in the folder diverged from the leader's before the snapshot's end."""
    disk = MemoryDisk()
    log = load(disk).log
    append(log, 1, length)
    snapshot(disk, 2, 1)
    new = snapshot(disk, 12, 5)
    for _ in range(2):
        loaded = load(disk)
        assert (loaded.log.log_start_offset, loaded.log.end_offset) == (12, 12)
        assert loaded.log_start == LogEnd(Epoch(5), Offset(12))
        assert list(loaded.snapshots) == [new]
        assert loaded.epochs == ()


def test_damage_is_named_and_nothing_is_guessed() -> None:
    disk = MemoryDisk()
    load(disk)
    id_ = snapshot(disk, 3, 1)
    disk.open(folder.snapshot_path(PATH, id_)).pwrite(b"?", 30)
    with pytest.raises(FolderDamaged, match="not a complete snapshot"):
        load(disk)
    disk.unlink(folder.snapshot_path(PATH, id_))
    state = HardState(Epoch(4), NodeId(2), ReplicaKey(NodeId(3), UUID(int=9)))
    folder.write_hard_state(disk, PATH, state)
    assert load(disk).hard_state == state
    log = load(disk).log
    append(log, 1, 9)
    folder.write_recovery_point(disk, PATH, log.durable_offset)
    for segment in log.segments:
        disk.unlink(segment.path)
    with pytest.raises(FolderDamaged, match="the log is missing"):
        load(disk)
    snapshot(disk, 9, 1)
    assert load(disk).log.end_offset == 9, "nothing is missing"
    disk.open(f"{PATH}/{folder.HARD_STATE}").truncate(5)
    with pytest.raises(FolderDamaged, match="hard-state cannot be read"):
        load(disk)
