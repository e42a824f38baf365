"""A broker's heartbeats to the controller, and its behavior without one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.control.registration import BrokerRegistration, Stage
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ControllerLink
from lograft.metadata.brokers import CORDONED_LOG_DIRS_SINCE
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import METADATA_VERSION
from lograft.model.types import Offset
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Machine
from lograft.simulation.network import Network
from lograft.wire.message import Message
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import BrokerRegistrationResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import make_config
from tests.unit.broker.quorum.metadata_nodes import FakeDirectories

DIRECTORY = UUID(int=5)


class Controller:
    """A `ControllerLink` that returns prepared responses."""

    def __init__(self) -> None:
        self.is_down = False
        self.heartbeats: list[BrokerHeartbeatRequest] = []

    async def request(self, message: Message, *_: Any, **__: Any) -> Message:
        if self.is_down:
            await asyncio.sleep(0.1)
            raise ControllerUnreachable("down")
        if not isinstance(message, BrokerHeartbeatRequest):
            return BrokerRegistrationResponse(broker_epoch=7)
        self.heartbeats.append(message)
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=False, should_shut_down=message.want_shut_down
        )


class World:
    def __init__(self, **settings: str) -> None:
        self.loop = SimulatedLoop(1)
        life = Machine(self.loop, Network(self.loop), "n1").boot()
        self.life = life
        self.controller = Controller()
        self.halted: list[str] = []
        self.directories = FakeDirectories()
        config = make_config(**settings)
        self.metadata = ClusterMetadata(config)
        self.metadata.image = MetadataImage(offset=Offset(100))
        self.registration = BrokerRegistration(
            life.runtime,
            config,
            cast(ControllerLink, self.controller),
            cluster_id="c",
            directory_ids=(DIRECTORY,),
            metadata=self.metadata,
            halt=self.halted.append,
        )
        self.registration.prepare(self.directories, endpoints=())

    def fail(self, *, has_led: bool) -> None:
        self.directories.offline.append(DIRECTORY)
        self.registration.on_directory_failed(DIRECTORY, "/data", has_led=has_led)

    def run(self, scenario: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            await self.registration.register()
            beats = self.life.spawn(self.registration.run(), name="heartbeats")
            await self.registration.wait_unfenced()
            await scenario(self)
            beats.cancel()

        try:
            self.loop.run_until_complete(self.life.run(main(), name="test"))
        finally:
            self.loop.close()


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], **settings: str) -> None:
    World(**settings).run(scenario)


@scenario(run, log_dir_failure_timeout_ms="5000")
async def test_a_broker_that_cannot_report_a_failed_log_dir_stops(world: World, /) -> None:
    world.controller.is_down = True
    world.fail(has_led=True)
    await asyncio.sleep(4.9)
    assert world.halted == []
    await asyncio.sleep(0.2)
    (reason,) = world.halted
    assert "within 5000 ms" in reason
    assert "/data" in reason


@scenario(run, log_dir_failure_timeout_ms="5000")
async def test_a_failed_log_dir_that_is_reported_in_time_stops_nothing(world: World, /) -> None:
    world.controller.is_down = True
    world.fail(has_led=True)
    await asyncio.sleep(3)
    world.controller.is_down = False
    await asyncio.sleep(30)
    assert world.controller.heartbeats[-1].offline_log_dirs == [DIRECTORY]
    assert world.halted == []


@scenario(run, log_dir_failure_timeout_ms="5000")
async def test_nobody_waits_for_news_of_a_log_dir_that_led_nothing(world: World, /) -> None:
    world.controller.is_down = True
    world.fail(has_led=False)
    await asyncio.sleep(60)
    assert world.halted == []


@scenario(run)
async def test_heartbeats_name_cordoned_log_dirs(world: World, /) -> None:
    assert world.controller.heartbeats[-1].cordoned_log_dirs is None
    world.directories.cordoned = [DIRECTORY]
    await asyncio.sleep(5)
    # A metadata.version before that of KIP-1066 has no field for them.
    assert world.controller.heartbeats[-1].cordoned_log_dirs is None
    features = {METADATA_VERSION: CORDONED_LOG_DIRS_SINCE}
    world.metadata.image = MetadataImage(offset=Offset(100), features=features)
    await asyncio.sleep(5)
    assert world.controller.heartbeats[-1].cordoned_log_dirs == [DIRECTORY]


@scenario(run)
async def test_a_controlled_shutdown_asks_the_controller(world: World, /) -> None:
    await world.registration.shut_down()
    assert world.controller.heartbeats[-1].want_shut_down
    assert world.registration.stage is Stage.STOPPED


@scenario(run, controlled_shutdown_enable="false")
async def test_without_controlled_shutdown_the_broker_only_falls_silent(world: World, /) -> None:
    await world.registration.shut_down()
    assert not any(each.want_shut_down for each in world.controller.heartbeats)
    assert world.registration.stage is Stage.STOPPED
    count = len(world.controller.heartbeats)
    await asyncio.sleep(10)
    assert len(world.controller.heartbeats) == count
