"""Brokers on simulated machines, and a controller that detects their failures."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from lograft.broker.control.failure_detector import FailureDetector
from lograft.metadata.broker_sessions import BrokerSessions
from lograft.metadata.types import BrokerState, Endpoint
from lograft.model.seams import Address
from lograft.model.types import BrokerEpoch
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Machine
from lograft.simulation.network import Network
from tests.support.scenarios import scenario
from tests.unit.broker.quorum.metadata_nodes import node_config

PORT = 9092
EPOCH = 7


class FakeController:
    """Contains broker 2, on the machine `other`."""

    def __init__(self, *listeners: str, host: str = "other") -> None:
        self.sessions = BrokerSessions(9_000)
        self.is_active = True
        self.fenced: list[tuple[int, int]] = []
        self.broker = BrokerState(
            broker_id=2,
            epoch=BrokerEpoch(EPOCH),
            incarnation_id=UUID(int=1),
            endpoints=tuple(
                Endpoint(name, host, PORT + number, 0) for number, name in enumerate(listeners)
            ),
            features={},
            rack=None,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
            cordoned_log_dirs=None,
            is_migrating_zk_broker=False,
        )

    def find_registered(self, broker_id: int, broker_epoch: int) -> BrokerState | None:
        return self.broker if (broker_id, broker_epoch) == (2, EPOCH) and not self.fenced else None

    async def fence(self, broker_id: int, broker_epoch: int, reason: str) -> None:
        self.fenced.append((broker_id, broker_epoch))
        self.sessions.forget(broker_id, epoch=broker_epoch)


class World:
    def __init__(self, *listeners: str) -> None:
        self.loop = SimulatedLoop(1)
        network = Network(self.loop)
        self.machine = Machine(self.loop, network, "node")
        self.other = Machine(self.loop, network, "other")
        self.life = self.machine.boot()
        self.controller = FakeController(*(listeners or ("PLAINTEXT",)))
        self.dead = FailureDetector(self.life.runtime, node_config(), self.controller)

    async def listen(self, *ports: int) -> None:
        life = self.other.boot()

        async def bind() -> None:
            for port in ports:
                await life.runtime.transport.listen(Address("other", port), lambda channel: None)

        await life.run(bind(), name="bind")

    def on_heartbeat(self) -> None:
        now_ms = self.life.runtime.clock.mono_ms()
        self.controller.sessions.on_heartbeat(2, epoch=EPOCH, metadata_offset=9, now_ms=now_ms)

    def run(self, work: Callable[["World"], Awaitable[None]]) -> None:
        async def main() -> None:
            await work(self)

        self.loop.run_until_complete(self.life.run(main(), name="main"))
        assert not self.life.failures


def run(scenario: Callable[[World], Awaitable[None]], *listeners: str) -> None:
    World(*listeners).run(scenario)


@scenario(run)
async def test_a_killed_process_is_fenced_at_once(world: World, /) -> None:
    await world.listen(PORT)
    world.on_heartbeat()
    world.dead.check()
    await asyncio.sleep(0.5)
    assert world.controller.fenced == []
    world.other.kill()
    world.controller.sessions.on_disconnected(2, epoch=EPOCH)
    world.dead.check()
    await asyncio.sleep(0.1)
    assert world.controller.fenced == [(2, EPOCH)]


@scenario(run)
async def test_a_lost_connection_is_no_death(world: World, /) -> None:
    await world.listen(PORT)
    world.on_heartbeat()
    world.controller.sessions.on_disconnected(2, epoch=EPOCH)
    world.dead.check()
    await asyncio.sleep(5)
    assert world.controller.fenced == []
    # The process outlived its connection, but not for long.
    world.other.kill()
    await asyncio.sleep(1)
    assert world.controller.fenced == [(2, EPOCH)]


@scenario(run)
async def test_an_unreachable_machine_is_left_to_the_timeout(world: World, /) -> None:
    await world.listen(PORT)
    world.other.kill()
    world.machine.network.cut("node", "other")
    world.controller.sessions.expect(2, epoch=EPOCH, now_ms=0)
    world.dead.check()
    await asyncio.sleep(5)
    assert world.controller.fenced == []
    world.machine.network.heal()
    await asyncio.sleep(2)
    assert world.controller.fenced == [(2, EPOCH)]


@scenario(run)
async def test_who_speaks_again_is_left_alone(world: World, /) -> None:
    world.controller.sessions.expect(2, epoch=EPOCH, now_ms=0)
    world.machine.network.cut("node", "other")
    world.dead.check()
    await asyncio.sleep(0.1)
    world.on_heartbeat()  # over another connection
    world.machine.network.heal()
    await asyncio.sleep(3)
    assert world.controller.fenced == []


@scenario(run)
async def test_a_controller_that_lost_its_office_fences_nobody(world: World, /) -> None:
    world.controller.sessions.expect(2, epoch=EPOCH, now_ms=0)
    world.dead.check()
    world.controller.is_active = False
    await asyncio.sleep(3)
    assert world.controller.fenced == []


@scenario(run, "INSIDE", "OUTSIDE")
async def test_without_a_common_listener_all_must_be_closed(world: World, /) -> None:
    await world.listen(PORT + 1)
    world.controller.sessions.expect(2, epoch=EPOCH, now_ms=0)
    world.dead.check()
    await asyncio.sleep(3)
    assert world.controller.fenced == []
    world.other.kill()
    await asyncio.sleep(2)
    assert world.controller.fenced == [(2, EPOCH)]


@scenario(run, "OUTSIDE", "PLAINTEXT")
async def test_where_the_common_listener_is_closed_the_others_do_not_matter(
    world: World, /
) -> None:
    await world.listen(PORT)
    world.controller.sessions.expect(2, epoch=EPOCH, now_ms=0)
    world.dead.check()
    await asyncio.sleep(1)
    assert world.controller.fenced == [(2, EPOCH)]


@pytest.mark.parametrize(
    ("listener", "is_fenced"), [("localhost", True), ("127.0.0.2", True), ("node", False)]
)
@scenario(run)
async def test_the_localhost_of_another_machine_is_not_ours(
    world: World, /, listener: str, is_fenced: bool
) -> None:
    config = node_config(listeners=f"PLAINTEXT://:9092,CONTROLLER://{listener}:9093")
    world.controller = FakeController("PLAINTEXT", host="localhost")
    dead = FailureDetector(world.life.runtime, config, world.controller)
    world.controller.sessions.expect(2, epoch=EPOCH, now_ms=0)
    dead.check()
    await asyncio.sleep(3)
    assert bool(world.controller.fenced) == is_fenced
