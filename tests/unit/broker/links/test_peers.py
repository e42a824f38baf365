import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lograft.broker.errors import PeerIncompatible, PeerLost, PeerUnreachable
from lograft.broker.links.peers import CONNECTIONS, Peers
from lograft.model.metrics import value_of
from lograft.model.seams import Address, Channel
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.wire.apis import API_VERSIONS_KEY, Versions, response_header_version
from lograft.wire.frames import FrameBuffer
from lograft.wire.headers import RequestHeader, frame_response, read_request_header
from lograft.wire.message import Message
from lograft.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async

HEARTBEAT = HeartbeatRequest.KEY
ALL = Versions(0, 4)
SERVER = Address("server", 9092)


class Clerk:
    """Responds to ApiVersions, and to Heartbeats with the number of its connection; or not at
    all."""

    def __init__(self, channel: Channel, number: int, world: "World") -> None:
        self._channel = channel
        self._number = number
        self._world = world
        self._frames = FrameBuffer(1 << 20)
        channel.start(self)

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        for frame in self._frames.add_received(count):
            header = read_request_header(frame)
            world = self._world
            if header.api_key == API_VERSIONS_KEY:
                if not world.deaf:
                    self._answer(
                        ApiVersionsResponse(api_keys=world.served, is_lograft=world.is_lograft),
                        header,
                    )
                continue
            world.requests.append((header.api_key, header.api_version))
            if world.broken:
                self._channel.send([b"\xff\xff\xff\xff"])
            elif not world.silent:
                self._answer(HeartbeatResponse(error_code=self._number), header)

    def _answer(self, message: Message, header: RequestHeader) -> None:
        version = header.api_version
        self._channel.send(
            frame_response(
                message,
                version,
                correlation_id=header.correlation_id,
                header_version=response_header_version(header.api_key, version),
            )
        )

    def on_drained(self) -> None: ...

    def on_closed(self, error: Exception | None) -> None: ...


class World:
    def __init__(self) -> None:
        self.loop = SimulatedLoop(1)
        self.network = Network(self.loop)
        self.server = Machine(self.loop, self.network, "server")
        self.client = Machine(self.loop, self.network, "client").boot()
        self.peers = Peers(self.client.runtime, client_id="me")
        self.connections = 0
        #: Keys and versions, without ApiVersions.
        self.requests: list[tuple[int, int]] = []
        self.served = [ApiVersion(api_key=HEARTBEAT, min_version=0, max_version=4)]
        self.is_lograft = True
        #: Responds to nothing, or only to ApiVersions.
        self.deaf = False
        self.silent = False
        self.broken = False

    def _accept(self, channel: Channel) -> None:
        self.connections += 1
        Clerk(channel, self.connections, self)

    async def serve(self) -> Life:
        life = self.server.boot()

        async def listen() -> None:
            await life.runtime.transport.listen(SERVER, self._accept)

        await life.run(listen(), name="listen")
        return life

    async def ask(
        self,
        *,
        lane: str = "",
        timeout_ms: int = 1000,
        versions: Versions = ALL,
        lograft_only: bool = False,
    ) -> int:
        answer = await self.peers.request(
            SERVER,
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            versions,
            HeartbeatResponse,
            timeout_ms=timeout_ms,
            lane=lane,
            lograft_only=lograft_only,
        )
        return answer.error_code


def run(script: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    world = World()

    async def main() -> None:
        await world.client.run(script(world), name="test")

    try:
        world.loop.run_until_complete(main())
    finally:
        world.loop.close()


@scenario(run)
async def test_a_lane_is_one_connection_for_all_its_requests(world: World, /) -> None:
    await world.serve()
    answers = await asyncio.gather(*[world.ask() for _ in range(5)], world.ask(lane="fetch"))
    assert answers[:5] == [answers[0]] * 5
    assert answers[5] != answers[0]
    assert world.connections == 2
    assert value_of(world.peers, CONNECTIONS) == 2


@scenario(run)
async def test_a_dead_process_refuses_and_a_dead_machine_does_not(world: World, /) -> None:
    await world.serve()
    await world.ask()
    world.server.kill()
    with pytest.raises(PeerLost):
        # The notification of the failure is in flight.
        await world.ask()
    with pytest.raises(PeerUnreachable) as gone:
        await world.ask()
    assert gone.value.refused
    await world.serve()
    world.server.lose_power()
    with pytest.raises(PeerUnreachable) as down:
        await world.ask()
    assert not down.value.refused
    assert value_of(world.peers, CONNECTIONS) == 0


@scenario(run)
async def test_a_late_answer_costs_the_connection(world: World, /) -> None:
    await world.serve()
    world.silent = True
    with pytest.raises(PeerLost, match="within 50 ms"):
        await world.ask(timeout_ms=50)
    world.silent = False
    assert await world.ask() == 2


@scenario(run)
async def test_a_cancelled_request_leaves_the_connection_to_the_others(world: World, /) -> None:
    await world.serve()
    world.silent = True
    waiting = asyncio.get_running_loop().create_task(world.ask())
    await wait_until_async(lambda: world.requests)
    waiting.cancel()
    world.silent = False
    assert await world.ask() == 1


@scenario(run)
async def test_an_answer_that_is_no_frame_is_a_lost_one(world: World, /) -> None:
    await world.serve()
    world.broken = True
    with pytest.raises(PeerLost):
        await world.ask()


@scenario(run)
async def test_after_the_close_nothing_is_sent(world: World, /) -> None:
    await world.serve()
    world.silent = True
    waiting = asyncio.get_running_loop().create_task(world.ask())
    await wait_until_async(lambda: world.requests)
    world.peers.close()
    with pytest.raises(PeerLost):
        await waiting
    with pytest.raises(PeerUnreachable):
        await world.ask()
    assert len(world.requests) == 1


@scenario(run)
async def test_the_newest_version_of_both_sides_is_used(world: World, /) -> None:
    await world.serve()
    world.served[0].max_version = 2
    await world.ask()
    # A connection keeps its negotiated versions; an upgraded node has closed it.
    world.served[0].max_version = 4
    await world.ask()
    await world.ask(versions=Versions(0, 1))
    await world.ask(lane="new")
    assert [version for _, version in world.requests] == [2, 2, 1, 4]


@scenario(run)
async def test_an_older_build_uses_its_own_range(world: World, /) -> None:
    await world.serve()
    world.peers = Peers(world.client.runtime, client_id="old", ranges={HEARTBEAT: Versions(0, 3)})
    await world.ask()
    assert world.requests == [(HEARTBEAT, 3)]


@scenario(run)
async def test_a_node_that_lacks_what_is_needed_is_named_once(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    await world.serve()
    world.served[0].max_version = 2
    for _ in range(3):
        with pytest.raises(PeerIncompatible) as raised:
            await world.ask(versions=Versions(3, 4))
    assert "needs Heartbeat 3 to 4, the other node serves 0 to 2" in str(raised.value)
    assert not raised.value.refused
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    # Upgraded, so the connection is a new one.
    world.served[0].max_version = 4
    assert await world.ask(versions=Versions(3, 4), lane="new") == 2
    assert world.requests == [(HEARTBEAT, 4)]


@scenario(run)
async def test_another_server_is_not_sent_what_only_lograft_understands(world: World, /) -> None:
    await world.serve()
    world.is_lograft = False
    with pytest.raises(PeerIncompatible, match="not a Lograft node"):
        await world.ask(lograft_only=True)
    assert await world.ask() == 1


@scenario(run)
async def test_a_server_that_accepts_and_does_not_answer_is_unreachable(world: World, /) -> None:
    await world.serve()
    world.deaf = True
    with pytest.raises(PeerUnreachable, match="timed out while connecting"):
        await world.ask(timeout_ms=50)
    world.deaf = False
    assert await world.ask() == 2
    assert world.requests == [(HEARTBEAT, 4)]


@scenario(run)
async def test_a_knock_asks_nothing(world: World, /) -> None:
    await world.serve()
    world.deaf = True
    await world.peers.connect(SERVER, timeout_ms=50)
    world.deaf = False
    assert await world.ask() == 1
