"""The link to the active controller over a simulated network: it moves, dies, hangs, and
returns."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lograft.api.router import Router
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ControllerLink, ForwardedRequest, has_error
from lograft.broker.links.peers import Peers
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.net.connection_limits import ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.server import Server
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Machine
from lograft.simulation.network import Network
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, StandInController, make_config

PORT = 9093


class FakeQuorum:
    is_leader = False
    endpoint: Address | None = None

    def leader_endpoint(self) -> Address | None:
        return self.endpoint


class FakeController:
    """In the process of the node that sends the request."""

    def __init__(self, answer: Callable[[], Awaitable[Message]]) -> None:
        self._answer = answer

    async def call(self, message: Message, version: int) -> Message:
        return await self._answer()

    async def handle_forwarded(self, request: ForwardedRequest) -> Message:
        return await self._answer()


class World:
    """A node `asker` with a link, and controllers on separate machines."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(1)
        self.network = Network(self.loop)
        self.asker = Machine(self.loop, self.network, "asker").boot()
        self.quorum = FakeQuorum()
        self.benches: dict[str, Bench] = {}
        self.machines: dict[str, Machine] = {}
        runtime = self.asker.runtime
        self.link = ControllerLink(runtime, self.quorum, Peers(runtime, client_id="test"))

    async def controller(self, host: str) -> Bench:
        machine = self.machines[host] = Machine(self.loop, self.network, host)
        life = machine.boot()
        bench = self.benches[host] = Bench(life, make_config(), StandInController())

        async def start() -> None:
            await bench.start()
            server = Server(
                "CONTROLLER",
                Router(bench.broker.shared, None, listener="CONTROLLER", role="controller"),
                runtime=life.runtime,
                quota=ConnectionQuota(),
                budget=FrameBudget(),
            )
            await server.start(Address(host, PORT))
            server.serve()

        await life.run(start(), name="start")
        return bench

    def lead(self, host: str) -> None:
        self.quorum.endpoint = Address(host, PORT)

    async def create(self, name: str, timeout_ms: int | None = 5_000) -> list[int]:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        reply = await self.link.request(
            CreateTopicsRequest(topics=[topic], timeout_ms=30_000),
            Versions(5, 7),
            CreateTopicsResponse,
            timeout_ms=timeout_ms,
        )
        return [result.error_code for result in reply.topics]

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.loop.call_later(seconds, act)

    def run(self, work: Callable[["World"], Awaitable[None]]) -> None:
        async def main() -> None:
            await work(self)

        try:
            self.loop.run_until_complete(self.asker.run(main(), name="main"))
        finally:
            self.loop.close()

    def elapsed_ms(self) -> int:
        return self.asker.runtime.clock.mono_ms()


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    World().run(scenario)


@scenario(run)
async def test_a_controller_elsewhere_is_asked(world: World, /) -> None:
    bench = await world.controller("a")
    world.lead("a")
    assert await world.create("t") == [0]
    assert list(bench.broker.image.topic_ids) == ["t"]


@scenario(run)
async def test_who_is_not_active_sends_on(world: World, /) -> None:
    first, second = await world.controller("a"), await world.controller("b")
    first.controller.down = True
    world.lead("a")
    world.later(1, lambda: world.lead("b"))
    assert await world.create("t") == [0]
    assert world.elapsed_ms() < 1_100
    assert list(second.broker.image.topic_ids) == ["t"]
    assert first.broker.image.topics == {}


@scenario(run)
async def test_a_killed_controller_is_left_as_soon_as_another_is_known(world: World, /) -> None:
    await world.controller("a")
    second = await world.controller("b")
    world.lead("a")
    assert await world.create("first") == [0]
    world.machines["a"].kill()
    world.later(2, lambda: world.lead("b"))
    assert await world.create("t") == [0]
    assert 2_000 <= world.elapsed_ms() < 2_150
    assert list(second.broker.image.topic_ids) == ["t"]


@scenario(run)
async def test_a_controller_that_hangs_is_left_as_soon_as_another_is_known(world: World, /) -> None:
    await world.controller("a")
    second = await world.controller("b")
    world.lead("a")
    assert await world.create("first") == [0]
    world.network.cut("a", "asker")
    world.later(2, lambda: world.lead("b"))
    assert await world.create("t") == [0]
    assert 2_000 <= world.elapsed_ms() < 2_150
    assert list(second.broker.image.topic_ids) == ["t"]


@scenario(run)
async def test_the_time_is_kept(world: World, /) -> None:
    start_ms = world.elapsed_ms()
    with pytest.raises(ControllerUnreachable, match="within 700 ms: the quorum has no leader"):
        await world.create("t", timeout_ms=700)
    world.lead("nowhere")
    with pytest.raises(ControllerUnreachable, match="nowhere:9093"):
        await world.create("t", timeout_ms=700)
    bench = await world.controller("a")
    world.lead("a")
    bench.controller.down = True
    with pytest.raises(ControllerUnreachable, match="a:9093 is not the active controller"):
        await world.create("t", timeout_ms=700)
    world.network.cut("a", "asker")
    with pytest.raises(ControllerUnreachable, match="700 ms"):
        await world.create("t", timeout_ms=700)
    assert world.elapsed_ms() - start_ms < 3_000


@scenario(run)
async def test_without_a_time_it_waits_until_there_is_a_controller(world: World, /) -> None:
    await world.controller("a")
    world.later(100, lambda: world.lead("a"))
    assert await world.create("t", timeout_ms=None) == [0]
    assert world.elapsed_ms() >= 100_000


@scenario(run)
async def test_in_this_process_no_socket_is_needed(world: World, /) -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    async def answer() -> CreateTopicsResponse:
        await asyncio.sleep(0)
        return CreateTopicsResponse(topics=[CreatableTopicResult(error_code=codes.pop(0))])

    world.quorum.is_leader = True
    world.link.local_controller = FakeController(answer)
    assert world.link.is_local
    assert await world.create("t") == [0]
    assert codes == []


@scenario(run)
async def test_office_lost_in_the_middle_is_looked_for_elsewhere(world: World, /) -> None:
    bench = await world.controller("b")

    async def answer() -> CreateTopicsResponse:
        await asyncio.sleep(3_600)
        raise AssertionError("nobody waits for this")

    def lose() -> None:
        world.quorum.is_leader = False
        world.lead("b")

    world.quorum.is_leader = True
    world.link.local_controller = FakeController(answer)
    world.later(1, lose)
    assert await world.create("t") == [0]
    assert list(bench.broker.image.topic_ids) == ["t"]
    assert world.elapsed_ms() < 1_200


def test_errors_are_found_wherever_they_stand() -> None:
    inside = CreateTopicsResponse(
        topics=[CreatableTopicResult(error_code=3), CreatableTopicResult(error_code=41)]
    )
    assert has_error(inside, ErrorCode.NOT_CONTROLLER)
    assert not has_error(inside, ErrorCode.INVALID_REQUEST)
    assert not has_error(CreateTopicsResponse(), ErrorCode.NOT_CONTROLLER)
