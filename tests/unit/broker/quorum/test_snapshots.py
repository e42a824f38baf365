"""Snapshots of the metadata log: their bytes, their retention, and starting from them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

import pytest

from lograft.broker.errors import MetadataCorrupt
from lograft.broker.quorum.snapshots import (
    Quorum,
    SnapshotId,
    read_bootstrap,
    read_snapshot,
    snapshot_ids,
    write_snapshot,
)
from lograft.consensus.types import ReplicaKey, VoterSet
from lograft.metadata.image import MetadataImage
from lograft.model.seams import Disk
from lograft.model.types import Epoch, NodeId, Offset
from lograft.simulation.machine import Life
from lograft.wire.message import Message
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from tests.support.scenarios import scenario
from tests.unit.broker.quorum.metadata_nodes import (
    FOLDER,
    ControlNode,
    decision,
    new_machine,
    node_config,
    run,
)

T = TypeVar("T")

#: Written by the format command of Apache Kafka 4.3.1 for a quorum with one voter.
KAFKAS_FIRST_SNAPSHOT = bytes.fromhex(
    "00000000000000000000009a00000000027a093117002000000002000001a1de01ee85000001a1de01ee85ff"
    "ffffffffffffffffffffffffff000000032a0000000800000003160000000001a1de01ee6400001e00000208"
    "000000050a000000010000820100000408000000066e00000200000001feec6b831b5a4801b11c84bf17d2ca"
    "aa020b434f4e54524f4c4c45520a6c6f63616c686f737471a500000000010000000000000000000000030000"
    "003f0000000002bf46528d002000000000000001a1de01ee95000001a1de01ee95ffffffffffffffffffffff"
    "ffffff000000011a00000008000000040600000000"
)


def on_disk(check: Callable[[Disk], None]) -> None:
    async def work(life: Life) -> None:
        life.disk.make_dir("/s")
        await life.runtime.workers.run(lambda: check(life.disk))

    run(work)


def quorum(kraft_version: int = 1) -> Quorum:
    return Quorum(kraft_version, VoterSet.of([ReplicaKey(NodeId(1), UUID(int=77))]))


def settings(*numbers: int) -> list[Message]:
    return [ConfigRecord(resource_type=4, name=f"n{n}", value=str(n)) for n in numbers]


def test_a_snapshot_reads_as_it_was_written() -> None:
    def check(disk: Disk) -> None:
        records = settings(*range(5000))
        snapshot_id = SnapshotId(Offset(123), Epoch(4))
        assert snapshot_id.file_name == "00000000000000000123-0000000004.checkpoint"
        for kraft_version in (0, 1):
            write_snapshot(
                disk,
                "/s",
                snapshot_id,
                iter(records),
                quorum=quorum(kraft_version),
                last_timestamp_ms=99,
                now_ms=100,
            )
            snapshot = read_snapshot(disk, "/s", snapshot_id)
            assert snapshot.records == tuple(records)
            assert snapshot.quorum == (quorum() if kraft_version else None)
            assert snapshot.last_timestamp_ms == 99
        assert disk.list_dir("/s") == [snapshot_id.file_name]
        assert snapshot_ids(disk, "/s") == [snapshot_id]

    on_disk(check)


def test_kafkas_own_snapshot_is_read() -> None:
    def check(disk: Disk) -> None:
        first = SnapshotId(Offset(0), Epoch(0))
        disk.open(f"/s/{first.file_name}", create=True).append(KAFKAS_FIRST_SNAPSHOT)
        snapshot = read_snapshot(disk, "/s", first)
        assert snapshot.records == ()
        assert snapshot.quorum is not None
        assert snapshot.quorum.kraft_version == 1
        (voter,) = snapshot.quorum.voters.voters
        assert voter.key == ReplicaKey(NodeId(1), UUID("feec6b83-1b5a-4801-b11c-84bf17d2caaa"))
        assert voter.endpoints[0] == ("CONTROLLER", "localhost", 29093)

    on_disk(check)


def test_a_snapshot_that_is_not_whole_is_refused() -> None:
    def check(disk: Disk) -> None:
        snapshot_id = SnapshotId(Offset(1), Epoch(1))
        path = f"/s/{snapshot_id.file_name}"
        write_snapshot(
            disk,
            "/s",
            snapshot_id,
            settings(1, 2),
            quorum=quorum(),
            last_timestamp_ms=0,
            now_ms=0,
        )
        whole = disk.read(path)
        for cut in (0, 10, 61, len(whole) - 75, len(whole) - 1):
            file = disk.open(path)
            file.truncate(0)
            file.append(whole[:cut])
            with pytest.raises(MetadataCorrupt):
                read_snapshot(disk, "/s", snapshot_id)
        for position in range(21, len(whole), 7):
            file = disk.open(path)
            file.truncate(0)
            file.append(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
            try:
                snapshot = read_snapshot(disk, "/s", snapshot_id)
            except MetadataCorrupt:
                continue
            # Offsets and epochs of batches are not covered by the CRC, and have no meaning in a
            # snapshot.
            assert snapshot.records == tuple(settings(1, 2))

    on_disk(check)


@scenario(run)
async def test_bootstrap_records_are_those_of_the_format(life: Life, /) -> None:
    await ControlNode.load(life, node_config())
    records = read_bootstrap(life.disk, "/data")
    assert FeatureLevelRecord(name="metadata.version", feature_level=30) in records
    assert read_bootstrap(life.disk, "/nowhere") == ()


def test_a_restart_reads_the_snapshot_and_the_tail_only() -> None:
    machine = new_machine()

    async def first(life: Life) -> MetadataImage:
        node = await ControlNode.start(life)
        await node.controller.submit(decision(*settings(1, 2, 3)))
        assert await node.snapshotter.take() == SnapshotId(Offset(node.image.offset + 1), Epoch(1))
        assert await node.snapshotter.take() is None  # no new records
        await node.controller.submit(decision(*settings(4)))
        return node.image

    async def second(life: Life) -> MetadataImage:
        node = await ControlNode.load(life, node_config())
        assert node.loaded.snapshot is not None
        configs = [
            record for record in node.loaded.snapshot.records if isinstance(record, ConfigRecord)
        ]
        assert [config.name for config in configs] == ["min.insync.replicas", "n1", "n2", "n3"]
        assert [batch.records for batch in node.loaded.tail] == [tuple(settings(4))]
        node.driver.start()
        # The snapshot is known to be committed before there is a leader, the tail is not.
        known = node.image.config_of(4, "")
        assert known == {"min.insync.replicas": "1", "n1": "1", "n2": "2", "n3": "3"}
        await node.driver.wait_ready()
        assert "n4" in node.image.config_of(4, "")
        return node.image

    before, after = run(first, machine), run(second, machine)
    assert after.configs == before.configs
    assert after.features == before.features


@scenario(run)
async def test_snapshots_are_taken_by_bytes_and_by_time(life: Life, /) -> None:
    config = node_config(
        metadata_log_max_record_bytes_between_snapshots="2000",
        metadata_log_max_snapshot_interval_ms="60000",
    )

    node = await ControlNode.start(life, config)
    life.runtime.spawn(node.snapshotter.run(), name="snapshots")
    for number in range(60):
        await node.controller.submit(decision(*settings(number)))
    by_bytes = snapshot_ids(life.disk, FOLDER)
    assert 2 <= len(by_bytes) <= 4
    await asyncio.sleep(61)
    by_time = snapshot_ids(life.disk, FOLDER)
    assert len(by_time) == len(by_bytes) + 1
    assert by_time[-1].end_offset == node.image.offset + 1
    await asyncio.sleep(3600)  # nothing is written without new records
    assert snapshot_ids(life.disk, FOLDER) == by_time


def test_retention_lets_go_of_old_snapshots_and_of_the_log_before_them() -> None:
    config = node_config(
        metadata_log_max_record_bytes_between_snapshots="3000",
        metadata_max_retention_bytes="12000",
        internal_metadata_log_segment_bytes="2000",
        internal_metadata_delete_delay_millis="0",
    )
    machine = new_machine()

    async def first(life: Life) -> MetadataImage:
        node = await ControlNode.start(life, config)
        life.runtime.spawn(node.snapshotter.run(), name="snapshots")
        for number in range(300):
            await node.controller.submit(decision(*settings(number % 10)))
        await node.snapshotter.take()
        ids = snapshot_ids(life.disk, FOLDER)
        assert ids[0].end_offset > 0
        assert node.driver.log.log_start_offset == ids[0].end_offset
        assert node.driver.log.size_bytes < 14_000
        assert node.driver.log.segments[0].base_offset > 0
        return node.image

    async def second(life: Life) -> MetadataImage:
        node = await ControlNode.start(life, config)
        assert node.driver.log.log_start_offset > 0
        assert not node.loaded.damaged
        return node.image

    async def third(life: Life) -> None:
        """The newest snapshots are damaged, and the log before them is deleted: the node does not
        start."""
        for snapshot_id in snapshot_ids(life.disk, FOLDER):
            life.disk.open(f"{FOLDER}/{snapshot_id.file_name}").truncate(100)
        with pytest.raises(MetadataCorrupt, match="no complete snapshot"):
            await ControlNode.start(life, config)

    before, after = run(first, machine), run(second, machine)
    assert after.configs == before.configs
    run(third, machine)


@scenario(run)
async def test_old_snapshots_go_by_time(life: Life, /) -> None:
    config = node_config(metadata_max_retention_ms="18000")

    node = await ControlNode.start(life, config)
    for number in range(3):
        await node.controller.submit(decision(*settings(number)))
        await asyncio.sleep(8)
        await node.snapshotter.take()
    ids = snapshot_ids(life.disk, FOLDER)
    assert len(ids) == 2
    assert node.driver.log.log_start_offset == ids[0].end_offset


def test_a_damaged_snapshot_is_passed_over_while_the_log_covers_it() -> None:
    machine = new_machine()

    async def first(life: Life) -> MetadataImage:
        node = await ControlNode.start(life)
        await node.controller.submit(decision(*settings(1)))
        snapshot_id = await node.snapshotter.take()
        assert snapshot_id is not None
        life.disk.open(f"{FOLDER}/{snapshot_id.file_name}").truncate(100)
        life.disk.open(f"{FOLDER}/{snapshot_id.file_name}.part", create=True)
        return node.image

    async def second(life: Life) -> MetadataImage:
        node = await ControlNode.start(life)
        assert len(node.loaded.damaged) == 1
        assert not any(name.endswith(".part") for name in life.disk.list_dir(FOLDER))
        return node.image

    assert run(first, machine).configs == run(second, machine).configs


@pytest.mark.parametrize(("beyond", "epoch"), [(50, 9), (-1, 9), (-1, 1), (0, 1)])
def test_a_snapshot_of_the_leader_takes_the_logs_place_after_a_crash_too(
    beyond: int, epoch: int
) -> None:
    """The snapshot was complete, but the log not yet emptied: shorter, or diverging, possibly with
    an epoch higher than the committed one."""
    machine = new_machine()

    async def live(life: Life) -> None:
        node = await ControlNode.start(life)
        await node.controller.submit(decision(*settings(1, 2, 3)))

    for _ in range(3):
        run(live, machine)

    async def interrupt(life: Life) -> SnapshotId:
        loaded = (await ControlNode.load(life, node_config())).loaded
        assert loaded.hard_state.epoch == 3
        found = SnapshotId(Offset(loaded.log.end_offset + beyond), Epoch(epoch))
        job = partial(
            write_snapshot,
            *(life.disk, FOLDER, found, settings(7)),
            quorum=loaded.quorum,
            last_timestamp_ms=0,
            now_ms=0,
        )
        await life.runtime.workers.run(job)
        return found

    found = run(interrupt, machine)

    async def reload(life: Life) -> None:
        loaded = (await ControlNode.load(life, node_config())).loaded
        assert loaded.snapshot is not None
        assert loaded.snapshot.id == found
        assert (loaded.log.log_start_offset, loaded.log.end_offset) == (found[0], found[0])

    run(reload, machine)
    run(reload, machine)
