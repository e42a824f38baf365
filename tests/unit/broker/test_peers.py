import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.peers import Peers
from lograft.model.seams import Address, Channel
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from lograft.wire.frames import FrameBuffer
from lograft.wire.headers import frame_response, read_request_header
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SERVER = Address("server", 9092)


class Clerk:
    """Answers ApiVersions, each with the number of its connection; or keeps silent."""

    def __init__(self, channel: Channel, number: int, world: "World") -> None:
        self._channel = channel
        self._number = number
        self._world = world
        self._frames = FrameBuffer(1 << 20)
        channel.start(self)

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def on_received(self, count: int) -> None:
        for frame in self._frames.received(count):
            header = read_request_header(frame)
            self._world.requests += 1
            if self._world.silent:
                continue
            answer = ApiVersionsResponse(error_code=self._number)
            parts = frame_response(
                answer, 0, correlation_id=header.correlation_id, header_version=0
            )
            self._channel.send([b"\xff\xff\xff\xff"] if self._world.broken else parts)

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
        self.requests = 0
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

    async def ask(self, *, lane: str = "", timeout_ms: int = 1000) -> int:
        answer = await self.peers.request(
            SERVER, ApiVersionsRequest(), 0, ApiVersionsResponse, timeout_ms=timeout_ms, lane=lane
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


def test_a_lane_is_one_connection_for_all_its_requests() -> None:
    async def script(world: World) -> None:
        await world.serve()
        answers = await asyncio.gather(*[world.ask() for _ in range(5)], world.ask(lane="fetch"))
        assert answers[:5] == [answers[0]] * 5
        assert answers[5] != answers[0]
        assert world.connections == 2
        assert world.peers.statistics() == {"peer_connections": 2}

    run(script)


def test_a_dead_process_refuses_and_a_dead_machine_does_not() -> None:
    async def script(world: World) -> None:
        await world.serve()
        await world.ask()
        world.server.kill()
        with pytest.raises(PeerLost):
            # The news of the death is on its way.
            await world.ask()
        with pytest.raises(PeerUnreachable) as gone:
            await world.ask()
        assert gone.value.refused
        await world.serve()
        world.server.lose_power()
        with pytest.raises(PeerUnreachable) as down:
            await world.ask()
        assert not down.value.refused
        assert world.peers.statistics() == {"peer_connections": 0}

    run(script)


def test_a_late_answer_costs_the_connection() -> None:
    async def script(world: World) -> None:
        await world.serve()
        world.silent = True
        with pytest.raises(PeerLost, match="within 50 ms"):
            await world.ask(timeout_ms=50)
        world.silent = False
        assert await world.ask() == 2

    run(script)


def test_a_cancelled_request_leaves_the_connection_to_the_others() -> None:
    async def script(world: World) -> None:
        await world.serve()
        world.silent = True
        waiting = asyncio.get_running_loop().create_task(world.ask())
        while not world.requests:
            await asyncio.sleep(0.001)
        waiting.cancel()
        world.silent = False
        assert await world.ask() == 1

    run(script)


def test_an_answer_that_is_no_frame_is_a_lost_one() -> None:
    async def script(world: World) -> None:
        await world.serve()
        world.broken = True
        with pytest.raises(PeerLost):
            await world.ask()

    run(script)


def test_after_the_close_nothing_is_sent() -> None:
    async def script(world: World) -> None:
        await world.serve()
        world.silent = True
        waiting = asyncio.get_running_loop().create_task(world.ask())
        while not world.requests:
            await asyncio.sleep(0.001)
        world.peers.close()
        with pytest.raises(PeerLost):
            await waiting
        with pytest.raises(PeerUnreachable):
            await world.ask()
        assert world.requests == 1

    run(script)
