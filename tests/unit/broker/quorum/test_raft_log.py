"""Batches and snapshots that were fetched from a leader."""

import pytest

from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.metadata_batches import control_batch, records_batch
from lograft.broker.quorum.raft_log import Fetched, slice_of
from lograft.broker.quorum.snapshots import (
    Quorum,
    SnapshotId,
    read_snapshot,
    snapshot_ids,
    voters_control,
    write_part,
    write_snapshot,
)
from lograft.consensus.types import ReplicaKey, Voter, VoterSet
from lograft.model.types import Epoch, NodeId, Offset
from lograft.simulation.machine import Life
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.unit.broker.quorum.metadata_nodes import (
    FOLDER,
    ControlNode,
    decision,
    new_machine,
    node_config,
    run,
)
from tests.unit.broker.quorum.test_raft_driver import setting

VOTERS = VoterSet((Voter(ReplicaKey(NodeId(1))), Voter(ReplicaKey(NodeId(2)))))


def batch(base: int, epoch: int, count: int = 2) -> bytes:
    records = [ConfigRecord(name=f"n{base + i}", value="1") for i in range(count)]
    return bytes(records_batch(records, base_offset=base, epoch=epoch, now_ms=0))


def test_a_slice_says_what_the_core_must_know() -> None:
    voters = control_batch([voters_control(VOTERS)], base_offset=14, epoch=4, now_ms=0)
    data = batch(10, 3) + batch(12, 4) + bytes(voters) + batch(15, 4)[:-1]
    entries = slice_of(data, source="here")
    assert (entries.base, entries.end) == (10, 15)
    assert entries.epochs == ((3, 10), (4, 12))
    assert entries.voters == ((14, VOTERS),)
    assert isinstance(entries.data, Fetched)
    assert len(entries.data.batches) == 3
    # The incomplete last batch is not part of it.
    assert len(entries.data.data) == len(data) - len(batch(15, 4)[:-1])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (batch(10, 3)[:-1], "without a complete batch"),
        (batch(10, 3) + batch(13, 3), "expected at 12"),
        (batch(10, 3) + batch(11, 3), "expected at 12"),
        (batch(10, 3)[:-3] + b"x" + batch(10, 3)[-2:], "CRC"),
    ],
)
def test_what_does_not_follow_or_is_damaged_is_no_slice(data: bytes, reason: str) -> None:
    with pytest.raises(MetadataCorrupt, match=reason):
        slice_of(data, source="here")


@scenario(run)
async def test_pieces_of_a_snapshot_must_follow_and_a_new_one_begins_anew(life: Life, /) -> None:
    disk = life.disk
    disk.make_dir("/s")
    first, second = SnapshotId(Offset(5), Epoch(1)), SnapshotId(Offset(9), Epoch(1))
    write_part(disk, "/s", first, 0, b"abc")
    with pytest.raises(MetadataCorrupt, match="3 bytes"):
        write_part(disk, "/s", first, 4, b"e")
    write_part(disk, "/s", first, 3, b"def")
    assert disk.read(f"/s/{first.file_name}.download") == b"abcdef"
    write_part(disk, "/s", second, 0, b"xyz")
    assert disk.list_dir("/s") == [f"{second.file_name}.download"]


def test_a_log_with_another_past_than_the_leaders_snapshot_gives_way() -> None:
    """The process ended between renaming the snapshot and emptying the log."""
    machine = new_machine()

    async def first(life: Life) -> None:
        node = await ControlNode.start(life)
        for number in range(5):
            await node.controller.submit(decision(setting(number)))
        end = node.driver.log.end_offset
        await node.driver.stop()
        quorum = Quorum(1, VoterSet((Voter(node.loaded.me),)))
        write_snapshot(
            life.disk,
            FOLDER,
            SnapshotId(Offset(end - 2), Epoch(7)),
            node.image.records(),
            quorum=quorum,
            last_timestamp_ms=0,
            now_ms=0,
        )

    async def second(life: Life) -> None:
        node = await ControlNode.load(life, node_config())
        newest = snapshot_ids(life.disk, FOLDER)[-1]
        assert newest.epoch == 7
        assert node.loaded.log.end_offset == node.loaded.log.log_start_offset == newest.end_offset
        assert node.loaded.tail == ()
        assert node.loaded.log_start == (7, newest.end_offset)
        assert read_snapshot(life.disk, FOLDER, newest).id == newest
        node.driver.start()
        await node.driver.wait_ready()
        # It leads above the snapshot's epoch, although its log does not contain that epoch.
        assert node.driver.epoch == 8

    run(first, machine)
    run(second, machine)
