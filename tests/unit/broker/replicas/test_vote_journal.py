"""The journal of votes: an entry that was reported as durable survives any fault."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from lograft.broker.errors import ReplicaNotMovable, VotesCorrupt
from lograft.broker.replicas import vote_journal
from lograft.broker.replicas.vote_journal import ENTRY_SIZE, VOTES, VoteJournal, order_of
from lograft.consensus.types import CONTROLLER, HardState, ReplicaKey
from lograft.model.errors import DiskFailed
from lograft.model.types import NO_NODE, Epoch, NodeId, TopicIdPartition
from lograft.simulation.disk import DiskFault
from lograft.simulation.machine import Life
from tests.unit.broker.bench import new_machine

TOPIC = UUID(int=7)


def key(partition: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, partition)


def state(epoch: int, *, voted: int = 2, life: int = 1) -> HardState:
    vote = ReplicaKey(NodeId(voted), UUID(int=voted))
    return HardState(Epoch(epoch), NO_NODE, vote, Epoch(life))


def open_journal(life: Life) -> tuple[VoteJournal, list[DiskFailed]]:
    failures: list[DiskFailed] = []
    life.disk.make_dir("/data")
    life.disk.fsync_dir("/")
    journal = VoteJournal(life.runtime, "/data", on_failed=failures.append)
    journal.load()
    life.runtime.spawn(journal.run(), name="votes")
    return journal, failures


async def written(journal: VoteJournal, partition: int, wanted: HardState) -> None:
    future = asyncio.get_running_loop().create_future()
    journal.write(key(partition), wanted, future.set_result)
    assert await future == wanted


def test_the_last_entry_of_a_partition_counts() -> None:
    machine = new_machine()

    async def write(life: Life) -> None:
        journal, _ = open_journal(life)
        await written(journal, 0, state(1))
        await written(journal, 1, state(4))
        await written(journal, 0, HardState(Epoch(9), NO_NODE, CONTROLLER, Epoch(3)))
        journal.forget(key(1))
        await written(journal, 2, HardState(Epoch(5), NodeId(3), None, Epoch(5)))

    async def read(life: Life) -> None:
        journal, _ = open_journal(life)
        assert journal.state_of(key(0)) == HardState(Epoch(9), NO_NODE, CONTROLLER, Epoch(3))
        assert journal.state_of(key(1)) == HardState()
        assert journal.state_of(key(2)) == HardState(Epoch(5), NodeId(3), None, Epoch(5))
        assert journal.partitions == [key(0), key(2)]

    for work in (write, read):
        life = machine.boot()
        machine.loop.run_until_complete(life.run(work(life), name="main"))
        assert not life.failures, life.failures
        machine.lose_power()
    machine.loop.close()


@pytest.mark.parametrize("seed", range(30))
def test_what_was_told_survives_a_power_loss(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vote_journal, "OLD_ENTRIES_MAX", 20)
    machine = new_machine(seed)
    chance = Random(seed)
    journalled: dict[int, int] = {}
    asked: dict[int, int] = {}

    async def live(life: Life) -> None:
        journal, _ = open_journal(life)
        for partition, epoch in journalled.items():
            assert epoch <= journal.state_of(key(partition)).epoch <= asked[partition]
        for partition in range(10):
            life.runtime.spawn(vote(journal, partition), name="voter")

    async def vote(journal: VoteJournal, partition: int) -> None:
        while True:
            asked[partition] = asked.get(partition, 0) + 1
            epoch = asked[partition]
            await written(journal, partition, state(epoch))
            journalled[partition] = epoch

    async def wait() -> None:
        await asyncio.sleep(chance.uniform(0, 0.05))

    for _ in range(8):
        life = machine.boot()
        machine.loop.run_until_complete(life.run(live(life), name="main"))
        machine.loop.run_until_complete(wait())
        assert not life.failures, life.failures
        if chance.random() < 0.8:
            machine.lose_power()
        else:
            machine.kill()
    assert sum(journalled.values()) > 10
    machine.loop.close()


def test_votes_of_one_moment_share_an_fsync() -> None:
    machine = new_machine()
    jobs = 0

    async def scenario(life: Life) -> None:
        nonlocal jobs
        journal, _ = open_journal(life)
        run_job = life.runtime.workers.run

        async def counted(job, *, lane=""):  # type: ignore[no-untyped-def]
            nonlocal jobs
            jobs += 1
            return await run_job(job, lane=lane)

        life.runtime.workers.run = counted  # type: ignore[method-assign]
        await asyncio.gather(*(written(journal, number, state(1)) for number in range(500)))

    life = machine.boot()
    machine.loop.run_until_complete(life.run(scenario(life), name="main"))
    assert not life.failures, life.failures
    assert jobs <= 2
    machine.loop.close()


def test_a_hole_before_later_votes_is_not_taken_for_a_torn_end() -> None:
    machine = new_machine()

    async def scenario(life: Life) -> None:
        journal, _ = open_journal(life)
        for epoch in range(1, 6):
            await written(journal, epoch, state(epoch))
        file = life.disk.open(f"/data/{VOTES}")
        assert file.size == 5 * ENTRY_SIZE
        file.pwrite(b"\xff", ENTRY_SIZE + 10)
        again = VoteJournal(life.runtime, "/data", on_failed=lambda error: None)
        with pytest.raises(VotesCorrupt):
            again.load()

    life = machine.boot()
    machine.loop.run_until_complete(life.run(scenario(life), name="main"))
    assert not life.failures, life.failures
    machine.loop.close()


def test_a_failed_fsync_is_told_and_nothing_after_it_is_called_written() -> None:
    machine = new_machine()

    async def scenario(life: Life) -> None:
        journal, failures = open_journal(life)
        await written(journal, 0, state(1))
        life.disk.faults.append(DiskFault(operation="fsync", path_part=VOTES))
        acknowledged: list[HardState] = []
        journal.write(key(0), state(2), acknowledged.append)
        await asyncio.sleep(1)
        journal.write(key(0), state(3), acknowledged.append)
        await asyncio.sleep(1)
        assert acknowledged == []
        assert len(failures) == 1

    life = machine.boot()
    machine.loop.run_until_complete(life.run(scenario(life), name="main"))
    assert not life.failures, life.failures
    machine.loop.close()


def test_store_returns_when_the_state_is_on_disk() -> None:
    machine = new_machine()

    async def write(life: Life) -> None:
        journal, _ = open_journal(life)
        await journal.store(key(0), state(4))

    async def read(life: Life) -> None:
        journal, _ = open_journal(life)
        assert journal.state_of(key(0)) == state(4)

    for work in (write, read):
        life = machine.boot()
        machine.loop.run_until_complete(life.run(work(life), name="main"))
        machine.lose_power()
    machine.loop.close()


def test_store_fails_with_the_disk_and_with_the_node() -> None:
    machine = new_machine()

    async def fail(life: Life) -> None:
        journal, failures = open_journal(life)
        life.disk.faults.append(DiskFault(operation="fsync"))
        for _ in range(2):
            with pytest.raises(DiskFailed):
                await journal.store(key(0), state(4))
        assert len(failures) == 1

    async def stop(life: Life) -> None:
        life.disk.make_dir("/other")
        journal = VoteJournal(life.runtime, "/other", on_failed=lambda _: None)
        stored = asyncio.ensure_future(journal.store(key(0), state(4)))
        await asyncio.sleep(0.001)
        journal.stop()
        with pytest.raises(ReplicaNotMovable):
            await stored

    life = machine.boot()
    for work in (fail, stop):
        machine.loop.run_until_complete(life.run(work(life), name="main"))
    machine.loop.close()


def test_the_later_of_two_states() -> None:
    voted_for = ReplicaKey(NodeId(1))
    ascending = [
        HardState(),
        HardState(Epoch(9), NO_NODE, CONTROLLER, Epoch(3)),
        HardState(Epoch(4), NodeId(1), None, Epoch(4)),
        HardState(Epoch(5), NO_NODE, None, Epoch(4)),
        HardState(Epoch(5), NO_NODE, voted_for, Epoch(4)),
        HardState(Epoch(5), NodeId(1), None, Epoch(4)),
        HardState(Epoch(6), NO_NODE, None, Epoch(4)),
    ]
    orders = [order_of(each) for each in ascending]
    assert orders == sorted(orders)
    assert len({*orders}) == len(orders)
