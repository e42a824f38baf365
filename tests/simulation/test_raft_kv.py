"""Tests of the key-value example with crashes, power losses and network partitions."""

import asyncio
from dataclasses import replace
from time import process_time
from typing import Final

import pytest

from examples.raft_kv.driver import RaftDriver
from examples.raft_kv.folder import SNAPSHOTS_KEPT
from examples.raft_kv.kv_client import CommandRejected, KvClient
from examples.raft_kv.links import frame
from examples.raft_kv.node import QUESTIONS_MAX, KvNode
from examples.raft_kv.packing import Value, pack, unpack_tuple
from examples.raft_kv.protocol import BUSY, COMMAND, OK, QUERY
from examples.raft_kv.store import DONE
from lograft.storage.log import FlushPlan
from lograft.wire.frames import FrameBuffer
from tests.simulation.kv_cluster import SETTINGS, FaultyRun, KvCluster, host, peer
from tests.simulation.linearizability import Operation, is_linearizable

pytestmark = [pytest.mark.simulation, pytest.mark.usefixtures("quiet")]

BUDGET_SECONDS = 3
SEEDS_TO_HUNT = 60


def run_with_faults(seed: int, node_type: type[KvNode] = KvNode) -> KvCluster:
    cluster = KvCluster(seed, node_type=node_type)
    cluster.run(FaultyRun(cluster).run())
    for key, history in cluster.history.items():
        assert is_linearizable(history), f"seed {seed}: {key!r} is not linearizable"
    return cluster


def test_store_is_linearizable_despite_faults() -> None:
    end = process_time() + BUDGET_SECONDS
    seed = installs = 0
    while process_time() < end:
        cluster = run_with_faults(seed)
        installs += cluster.figures.installs
        seed += 1
    assert installs > 0


# ── mutants ──────────────────────────────────────────────────────────────────────────────────


class ReadsWithoutBarrier(RaftDriver):
    async def query(self, question: bytes) -> bytes:
        self._check_leader()
        return self._machine.query(question)


class RespondsBeforeCommit(RaftDriver):
    async def propose(self, command: bytes) -> bytes:
        self._runtime.spawn(self._forget(command), name="forget")
        self._check_leader()
        return pack((DONE, 1))

    async def _forget(self, command: bytes) -> None:
        try:
            await super().propose(command)
        except Exception:
            pass


class FsyncsNothing(RaftDriver):
    def _flush_job(self, plan: FlushPlan) -> None: ...


#: Mutants, each with a seed that detects it.
MUTANTS: Final[dict[type[RaftDriver], int]] = {
    ReadsWithoutBarrier: 11,
    RespondsBeforeCommit: 0,
    FsyncsNothing: 6,
}


def hunt(mutant: type[RaftDriver], first: int) -> int | None:
    """Returns the first seed that detects the mutant."""

    class Node(KvNode):
        driver_type = mutant

    for seed in range(first, first + SEEDS_TO_HUNT):
        try:
            run_with_faults(seed, Node)
        except AssertionError:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_removed_safeguard_is_detected(mutant: type[RaftDriver]) -> None:
    assert hunt(mutant, MUTANTS[mutant]) is not None


def register(*operations: tuple[str, int, int, bytes | bool | None]) -> list[Operation]:
    """Builds a history from (kind, call, completion or -1, value written or found)."""
    return [
        Operation(
            kind,  # type: ignore[arg-type]
            called,
            value=found if kind == "set" else None,  # type: ignore[arg-type]
            completed_ns=2**63 if completed < 0 else completed,
            found=found,
        )
        for kind, called, completed, found in operations
    ]


def test_linearizability_check() -> None:
    write, late = ("set", 0, 10, b"1"), ("set", 20, -1, b"2")
    assert is_linearizable(register(write, ("get", 11, 12, b"1")))
    assert not is_linearizable(register(write, ("get", 11, 12, None)))
    assert is_linearizable(register(write, ("get", 5, 12, None)))
    assert not is_linearizable(register(write, ("get", 5, 7, b"1"), ("get", 8, 9, None)))
    assert is_linearizable(register(write, late, ("get", 30, 40, b"1"), ("get", 50, 60, b"2")))
    assert not is_linearizable(register(write, late, ("get", 30, 40, b"2"), ("get", 50, 60, b"1")))
    assert is_linearizable(register(write, ("delete", 20, 30, True), ("get", 31, 32, None)))
    assert not is_linearizable(register(write, ("delete", 20, 30, False)))
    assert not is_linearizable(register(("get", 11, 12, b"2"), late))


def test_command_with_a_lost_response_is_executed_once() -> None:
    cluster = KvCluster(6)

    async def delete(client: KvClient) -> None:
        # Executed at the first attempt; a later attempt gets its response.
        assert await client.delete(b"k")
        assert not await client.delete(b"k")

    async def main() -> None:
        for number in (1, 2, 3):
            await cluster.boot(number)
        client = cluster.client(timeout_ms=30_000)
        await cluster.as_client(client.set(b"k", b"v"))
        leader = cluster.leader
        assert leader is not None
        cluster.network.cut(host(leader), "clients")
        deleting = cluster.clients.run(delete(client), name="delete")
        await cluster.wait_until(lambda: not cluster.nodes[leader].store.items)
        cluster.network.reset_all("clients")
        cluster.network.heal()
        await deleting

    cluster.run(main())


# ── voters and snapshots ─────────────────────────────────────────────────────────────────────


def test_server_can_be_added_and_the_leader_removed() -> None:
    cluster = KvCluster(1)

    async def write(client: KvClient) -> None:
        for number in range(60):
            await client.set(b"k%d" % number, bytes(300))

    async def change(client: KvClient) -> None:
        await client.add_peer(peer(4))
        leader = cluster.leader
        assert leader is not None
        await client.remove_peer(leader)
        await client.set(b"last", b"1")
        # An outdated list of servers is enough, because every server knows the leader.
        with pytest.raises(CommandRejected, match="voter not found"):
            await client.remove_peer(leader)

    async def main() -> None:
        for number in (1, 2, 3):
            await cluster.boot(number)
        await cluster.as_client(write(cluster.client()))
        await cluster.boot(4)
        await cluster.as_client(change(cluster.client(timeout_ms=20_000)))
        new = cluster.nodes[4]
        assert new.driver.core.is_voter
        assert new.driver.installs == 1, "the log no longer starts at 0"
        assert len(new.driver.core.voters.voters) == 3
        await cluster.wait_until(lambda: new.store.items.get(b"last") == b"1")
        # The new server is a voter: after the failure of another one there is still a majority.
        cluster.crash(cluster.leader or 0, power=True)
        await cluster.as_client(cluster.client(timeout_ms=20_000).set(b"more", b"2"))

    cluster.run(main())


def test_server_that_is_far_behind_installs_the_snapshot() -> None:
    cluster = KvCluster(2)

    async def write(client: KvClient, count: int) -> None:
        for number in range(count):
            await client.set(b"k%d" % (number % 7), b"%d" % number + bytes(300))

    async def main() -> None:
        for number in (1, 2, 3):
            await cluster.boot(number)
        await cluster.as_client(write(cluster.client(), 5))
        stopped = next(n for n in (1, 2, 3) if n != cluster.leader)
        cluster.crash(stopped, power=False)
        await cluster.as_client(write(cluster.client(), 60))
        leader = cluster.nodes[cluster.leader or 0].driver
        log = leader.core.log
        assert log.start.offset > 20, "the log starts at the second newest snapshot"
        assert len(leader.core.snapshots) == SNAPSHOTS_KEPT
        assert len(leader.log.segments) < 10
        await cluster.boot(stopped)
        behind = cluster.nodes[stopped]
        await cluster.wait_until(lambda: behind.driver.applied == leader.applied)
        assert behind.driver.installs == 1
        assert behind.store.items == cluster.nodes[cluster.leader or 0].store.items
        # Its own snapshot is enough for a restart.
        cluster.crash(stopped, power=True)
        await cluster.boot(stopped)
        assert cluster.nodes[stopped].driver.applied >= log.start.offset

    cluster.run(main())


def test_snapshots_are_also_taken_periodically() -> None:
    cluster = KvCluster(3, founders=1, settings=replace(SETTINGS, snapshot_bytes=1 << 30))

    async def main() -> None:
        await cluster.boot(1)
        await cluster.as_client(cluster.client().set(b"k", b"v"))
        core = cluster.nodes[1].driver.core
        assert core.log.snapshot is None
        await cluster.wait_until(lambda: core.log.snapshot is not None, seconds=10)
        newest = core.log.snapshot
        await asyncio.sleep(20)
        assert core.log.snapshot == newest, "there were no new records"

    cluster.run(main())


@pytest.mark.parametrize("is_killed", [True, False])
def test_failed_leader_is_replaced_immediately(is_killed: bool) -> None:
    """A stopping leader hands over; after a kill, its host refuses connections."""
    cluster = KvCluster(4)

    async def main() -> None:
        for number in (1, 2, 3):
            await cluster.boot(number)
        await cluster.as_client(cluster.client().set(b"k", b"v"))
        leader = cluster.leader
        assert leader is not None
        start_ns = cluster.loop.now_ns
        if is_killed:
            cluster.crash(leader, power=False)
        else:
            machine, node = cluster.machines[leader], cluster.nodes.pop(leader)
            assert machine.life is not None
            await machine.life.run(node.stop(), name="stop")
            machine.exit()
        await cluster.wait_until(lambda: cluster.leader is not None)
        assert cluster.loop.now_ns - start_ns < 300_000_000, "faster than any timeout"

    cluster.run(main())


# ── invalid clients ──────────────────────────────────────────────────────────────────────────


class RawClient:
    """A Receiver that collects responses."""

    def __init__(self) -> None:
        self.frames = FrameBuffer(1 << 20)
        self.responses: list[tuple[Value, ...]] = []
        self.is_closed = False

    def get_buffer(self) -> memoryview:
        return self.frames.get_buffer()

    def on_received(self, count: int) -> None:
        self.responses += [unpack_tuple(frame) for frame in self.frames.add_received(count)]

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None:
        self.is_closed = True


def test_invalid_requests_are_rejected() -> None:
    cluster = KvCluster(5, founders=1)

    async def send(*frames: bytes) -> RawClient:
        channel = await cluster.clients.runtime.transport.connect(peer(1).address, timeout_ms=1_000)
        client = RawClient()
        channel.start(client)
        channel.send([frame(each) for each in frames])
        await asyncio.sleep(2)
        channel.abort()
        return client

    async def main() -> None:
        await cluster.boot(1)
        await cluster.as_client(cluster.client().set(b"k", b"v"))
        for invalid in (b"", b"?", b"C", b"C" + pack(1), b"R" + pack((8, 1, 2, 3, 0, 4))):
            assert (await send(invalid)).is_closed
        command = b"C" + pack((7, COMMAND, b"nonsense"))
        client = await send(command, b"C" + pack((8, 99, None)), b"C" + pack((9, QUERY, b"k")))
        assert [response[:2] for response in sorted(client.responses)] == [(7, 4), (8, 4), (9, 0)]
        many = await send(*(b"C" + pack((n, QUERY, b"k")) for n in range(QUESTIONS_MAX + 5)))
        codes = [response[1] for response in many.responses]
        assert len(codes) == QUESTIONS_MAX + 5, "every request gets a response, even if it is BUSY"
        assert set(codes) == {OK, BUSY}
        assert not many.is_closed

    cluster.run(main())
