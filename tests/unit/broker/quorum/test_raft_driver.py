"""A quorum with one voter: what is committed, when, and what remains after a restart."""

import asyncio
import json
from dataclasses import replace
from typing import TypeVar

import pytest

from lograft.broker.errors import MetadataCorrupt, NotController
from lograft.broker.quorum.snapshots import Quorum
from lograft.consensus.messages import Error, UpgradeVersionRequest
from lograft.consensus.types import VoterEndpoint, VoterSet
from lograft.metadata.types import ELR_VERSION
from lograft.model.errors import DiskFailed, InvalidInput
from lograft.simulation.disk import DiskFault
from lograft.simulation.machine import Life
from lograft.storage.errors import BatchCorruptBelowRecoveryPoint
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async
from tests.unit.broker.quorum.metadata_nodes import (
    FOLDER,
    ControlNode,
    decision,
    new_machine,
    node_config,
    run,
)

T = TypeVar("T")


def setting(number: int) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name=f"n{number}", value="1")


@scenario(run)
async def test_the_first_start_writes_what_the_storage_was_formatted_with(life: Life, /) -> None:
    node = await ControlNode.start(life)
    assert node.driver.epoch == 1
    assert node.driver.is_leader
    features = node.image.features
    assert features["metadata.version"] == 30
    assert features[ELR_VERSION] == 1
    # Leader change with kraft version and voters, then the bootstrap transaction: its begin and
    # end, the features, and min.insync.replicas.
    count = len(features) + 3
    assert node.batches == [(2, 1, 0), (2 + count, 1, count)]
    assert node.driver.quorum.kraft_version == 1
    assert node.driver.quorum.voters.has(node.loaded.me)
    state = json.loads(life.disk.read(f"{FOLDER}/quorum-state"))
    assert state == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }


def test_a_static_quorum_has_the_older_state_file() -> None:
    config = node_config(
        controller_quorum_voters="1@localhost:9093", controller_quorum_bootstrap_servers=""
    )

    async def work(life: Life) -> int:
        node = await ControlNode.start(life, config)
        assert node.driver.quorum.kraft_version == 0
        state = json.loads(life.disk.read(f"{FOLDER}/quorum-state"))
        assert (state["data_version"], state["currentVoters"]) == (0, [{"voterId": 1}])
        return node.driver.epoch

    machine = new_machine()
    assert [run(work, machine) for _ in range(2)] == [1, 2]


def test_a_single_static_voter_gets_its_directory_in_the_log() -> None:
    config = node_config(
        controller_quorum_voters="1@localhost:9093", controller_quorum_bootstrap_servers=""
    )

    async def first(life: Life) -> None:
        node = await ControlNode.start(life, config)
        driver = node.driver
        driver.endpoints = (VoterEndpoint("CONTROLLER", "here", 9093),)
        request = UpgradeVersionRequest(voter=driver.describe_voter())
        end = driver.log.end_offset
        checked = await driver.ask(replace(request, validate_only=True))
        assert (checked.error, driver.log.end_offset) == (Error.NONE, end)
        assert (await driver.ask(request)).error is Error.NONE
        assert driver.quorum == Quorum(1, VoterSet((driver.describe_voter(),)))
        # A batch has both records; the level is never in the log without the voters.
        assert node.batches[-1] == (end + 1, driver.epoch, 0)
        assert (await driver.ask(request)).error is Error.NONE
        assert driver.log.end_offset == end + 2

    async def second(life: Life) -> None:
        node = await ControlNode.start(life, config)
        assert node.driver.quorum.kraft_version == 1
        (voter,) = node.driver.voters.voters
        assert (voter.key, voter.endpoints[0].host) == (node.loaded.me, "here")
        state = json.loads(life.disk.read(f"{FOLDER}/quorum-state"))
        assert state["data_version"] == 1

    machine = new_machine()
    run(first, machine)
    run(second, machine)


def test_a_restart_gives_the_same_image_in_a_new_epoch() -> None:
    machine = new_machine()

    async def first(life: Life) -> ControlNode:
        node = await (await ControlNode.start(life)).with_broker()
        for number in range(5):
            reply = await node.create(f"t{number}", partitions=3)
            assert reply.topics[0].error_code == 0
        return node

    async def second(life: Life) -> ControlNode:
        return await ControlNode.start(life)

    before, after = run(first, machine).image, run(second, machine).image
    assert after.epoch == before.epoch + 1
    assert after.offset == before.offset + 1  # the leader change
    after.epoch, after.offset = before.epoch, before.offset
    assert after == before


@scenario(run)
async def test_a_reply_waits_for_the_disk(life: Life, /) -> None:
    node = await ControlNode.start(life)
    end = node.driver.log.end_offset
    task = asyncio.ensure_future(node.controller.submit(decision(setting(1))))
    await asyncio.sleep(0)
    while node.driver.log.end_offset == end:
        await asyncio.sleep(0)
    # It is in the log and in the controller's image, but not visible to others.
    assert not task.done()
    assert "n1" not in node.image.config_of(4, "")
    # A decision without records depends on the same state, so it waits, too.
    reading = asyncio.ensure_future(node.controller.submit(decision()))
    await asyncio.sleep(0)
    assert not reading.done()
    assert await task == "done"
    assert node.image.config_of(4, "")["n1"] == "1"
    assert node.driver.log.durable_offset == node.driver.log.end_offset
    assert await reading == "done"


@scenario(run)
async def test_one_fsync_serves_many_decisions(life: Life, /) -> None:
    node = await ControlNode.start(life)
    # A fault after more operations than there are counts the operations.
    counter = DiskFault(operation="fsync", path_part=".log", skip=1000)
    life.disk.faults.append(counter)
    decisions = [node.controller.submit(decision(setting(number))) for number in range(200)]
    assert await asyncio.gather(*decisions) == ["done"] * 200
    assert 1 <= 1000 - counter.skip <= 5
    assert sum(name.startswith("n") for name in node.image.config_of(4, "")) == 200


@scenario(run)
async def test_a_batch_is_all_or_nothing_and_not_too_large(life: Life, /) -> None:
    from lograft.broker.errors import MetadataBatchTooLarge

    node = await ControlNode.start(life)
    end = node.driver.log.end_offset
    huge = ConfigRecord(resource_type=4, name="x", value="v" * (9 << 20))
    with pytest.raises(MetadataBatchTooLarge, match="split the request"):
        await node.controller.submit(decision(huge))
    assert node.driver.log.end_offset == end
    assert await node.controller.submit(decision(setting(1), setting(2))) == "done"
    assert node.batches[-1] == (end + 1, 1, 2)


@scenario(run)
async def test_before_the_election_nobody_is_controller(life: Life, /) -> None:
    node = await ControlNode.load(life, node_config())
    with pytest.raises(NotController):
        await node.controller.submit(decision())
    with pytest.raises(NotController):
        node.driver.append([setting(1)])


def test_a_failed_fsync_ends_the_node() -> None:
    machine = new_machine()
    life = machine.boot()

    async def main() -> None:
        node = await ControlNode.start(life)
        life.disk.faults.append(DiskFault(operation="fsync", path_part=".log"))
        task = asyncio.ensure_future(node.controller.submit(decision(setting(1))))
        await wait_until_async(lambda: life.failures)
        # The commit is not reported, and the disk is not used again.
        assert not task.done()
        assert "n1" not in node.image.config_of(4, "")
        with pytest.raises(DiskFailed):
            await node.controller.submit(decision(setting(2)))
        await node.driver.stop()
        with pytest.raises(NotController, match="may or may not"):
            await task

    machine.loop.run_until_complete(life.run(main(), name="main"))
    assert isinstance(life.failures[0], DiskFailed)


def test_a_failed_write_ends_the_node() -> None:
    machine = new_machine()
    life = machine.boot()

    async def main() -> None:
        node = await ControlNode.start(life)
        life.disk.faults.append(DiskFault(operation="write", path_part=".log"))
        with pytest.raises(DiskFailed):
            await node.controller.submit(decision(setting(1)))
        await wait_until_async(lambda: life.failures)
        with pytest.raises(DiskFailed):
            await node.controller.submit(decision(setting(2)))

    machine.loop.run_until_complete(life.run(main(), name="main"))
    assert isinstance(life.failures[0], DiskFailed)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"data_version":1}', b'{"data_version":7}']
)
def test_a_damaged_vote_is_not_guessed(content: bytes) -> None:
    machine = new_machine()

    async def first(life: Life) -> None:
        await ControlNode.start(life)
        file = life.disk.open(f"{FOLDER}/quorum-state")
        file.truncate(0)
        file.append(content)

    async def second(life: Life) -> None:
        with pytest.raises(MetadataCorrupt, match="quorum-state"):
            await ControlNode.start(life)

    run(first, machine)
    run(second, machine)


def test_damage_in_what_was_fsynced_is_not_cut_away() -> None:
    machine = new_machine()

    async def first(life: Life) -> int:
        node = await ControlNode.start(life)
        for number in range(20):
            await node.controller.submit(decision(setting(number)))
        await node.driver.stop()
        return node.driver.log.active.size

    async def second(life: Life) -> None:
        with pytest.raises(BatchCorruptBelowRecoveryPoint, match="Restore it"):
            await ControlNode.start(life)

    size = run(first, machine)
    machine.platter.flip_bit(f"{FOLDER}/{0:020d}.log", size - 200, 3)
    run(second, machine)


def test_missing_log_without_complete_snapshot_stops_the_node() -> None:
    machine = new_machine()

    async def first(life: Life) -> None:
        node = await ControlNode.start(life)
        await node.controller.submit(decision(setting(1)))
        await node.driver.stop()

    async def second(life: Life) -> None:
        life.disk.unlink(f"{FOLDER}/{0:020d}.log")
        with pytest.raises(MetadataCorrupt, match="the log is missing"):
            await ControlNode.start(life)

    run(first, machine)
    run(second, machine)


@scenario(run)
async def test_an_only_voter_with_another_disk_is_refused(life: Life, /) -> None:
    node = await ControlNode.start(life)
    text = life.disk.read("/data/meta.properties").decode()
    lines = [line for line in text.splitlines() if not line.startswith("directory.id")]
    lines.append("directory.id=_uxrgxtaSAGxHIS_F9LKqg")
    file = life.disk.open("/data/meta.properties")
    file.truncate(0)
    file.append("\n".join(lines).encode())
    del node
    with pytest.raises(InvalidInput, match=r"directory\.id"):
        await ControlNode.load(life, node_config())


@pytest.mark.parametrize("seed", range(20, 60))
def test_what_was_acknowledged_survives_a_power_loss(seed: int) -> None:
    """Power is cut at random moments, several times: every acknowledged decision is kept, the
    replayed log and the snapshot with its tail give the same image, and epochs only increase."""
    machine = new_machine(seed)
    chance = machine.loop.streams.stream("test")
    config = node_config(
        metadata_log_max_record_bytes_between_snapshots="400",
        metadata_max_retention_bytes="3000",
        internal_metadata_log_segment_bytes="1500",
    )
    acknowledged: dict[str, None] = {}
    epochs: list[int] = []
    number = 0

    async def write(node: ControlNode, worker: int) -> None:
        nonlocal number
        while True:
            number += 1
            name = f"n{number}"
            # A topic must come from the snapshot or from the tail: replaying it twice is an error.
            topic = TopicRecord(name=name, topic_id=node.runtime.randomness.uuid())
            await node.controller.submit(decision(topic, setting(number % 10)))
            acknowledged[name] = None

    async def live(life: Life) -> None:
        node = await ControlNode.start(life, config)
        missing = [name for name in acknowledged if name not in node.image.topic_ids]
        assert not missing, missing
        epochs.append(node.driver.epoch)
        life.runtime.spawn(node.snapshotter.run(), name="snapshots")
        for worker in range(3):
            life.runtime.spawn(write(node, worker), name="writer")

    for _ in range(6):
        life = machine.boot()
        machine.loop.run_until_complete(life.run(live(life), name="main"))

        async def wait(seconds: float) -> None:
            await asyncio.sleep(seconds)

        machine.loop.run_until_complete(wait(chance.uniform(0.0, 0.15)))
        assert not life.failures, life.failures
        if chance.random() < 0.8:
            machine.lose_power()
        else:
            machine.kill()
    assert len(acknowledged) > 5
    assert epochs == sorted(set(epochs))
    machine.loop.close()
