import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lograft.model.seams import Address, Channel, FileSlice
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Life, Machine
from lograft.simulation.network import Network
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async

SERVER = Address("server", 9092)


class Collector:
    """A Receiver that collects all data through a small buffer."""

    def __init__(self, buffer_bytes: int = 100) -> None:
        self.buffer = bytearray(buffer_bytes)
        self.data = bytearray()
        self.chunks: list[int] = []
        self.drained = 0
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def get_buffer(self) -> memoryview:
        return memoryview(self.buffer)

    def on_received(self, count: int) -> None:
        self.data += self.buffer[:count]
        self.chunks.append(count)

    def on_drained(self) -> None:
        self.drained += 1

    def on_closed(self, error: Exception | None) -> None:
        self.closed.set_result(error)


class World:
    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop(seed)
        self.network = Network(self.loop)
        self.server = Machine(self.loop, self.network, "server")
        self.client = Machine(self.loop, self.network, "client")
        self.accepted: list[tuple[Channel, Collector]] = []
        self.client_life = self.client.boot()

    def _accept(self, channel: Channel) -> None:
        collector = Collector()
        self.accepted.append((channel, collector))
        channel.start(collector)

    async def serve(self) -> Life:
        life = self.server.boot()
        await life.run(self._listen(life), name="listen")
        return life

    async def _listen(self, life: Life) -> None:
        await life.runtime.transport.listen(SERVER, self._accept)

    async def connect(self) -> tuple[Channel, Collector]:
        channel = await self.client_life.runtime.transport.connect(SERVER, timeout_ms=1000)
        collector = Collector()
        channel.start(collector)
        return channel, collector

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self.loop.run_until_complete(
                self.loop.create_task(main(), context=self.client_life.context)
            )
            assert not self.loop.unhandled
        finally:
            self.loop.close()


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    world = World(seed)
    world.run(lambda: scenario(world))


@pytest.mark.parametrize("seed", range(10))
@scenario(run)
async def test_bytes_arrive_in_order_and_in_chunks(world: World, /, seed: int) -> None:
    await world.serve()
    channel, collector = await world.connect()
    sent = bytes(range(256)) * 1000
    channel.send([sent[:100_000], memoryview(sent)[100_000:]])
    await wait_until_async(lambda: world.accepted and len(world.accepted[0][1].data) >= len(sent))
    received = world.accepted[0][1]
    assert received.data == sent
    assert len(set(received.chunks)) > 3
    assert 1 in received.chunks
    assert channel.unsent_bytes == 0
    assert collector.drained == 1
    world.accepted[0][0].send([b"response"])
    world.accepted[0][0].close()
    assert await collector.closed is None
    assert collector.data == b"response"


@scenario(run, 3)
async def test_paused_reader_blocks_the_sender(world: World, /) -> None:
    await world.serve()
    channel, _ = await world.connect()
    await wait_until_async(lambda: world.accepted)
    far, received = world.accepted[0]
    far.pause_reading()
    channel.send([bytes(1_000_000)])
    await asyncio.sleep(10)
    assert received.data == b""
    assert channel.unsent_bytes > 900_000
    far.resume_reading()
    await asyncio.sleep(200)
    assert len(received.data) == 1_000_000
    assert channel.unsent_bytes == 0


@scenario(run, 4)
async def test_file_slices_are_read_when_sent(world: World, /) -> None:
    await world.serve()
    channel, _ = await world.connect()
    disk = world.client_life.disk
    file = disk.open("/f", create=True)
    file.append(bytes(range(200)) * 10)
    channel.send([b"<", FileSlice(file, 100, 1000), b">"])
    await asyncio.sleep(10)
    expected = b"<" + (bytes(range(200)) * 10)[100:1100] + b">"
    assert world.accepted[0][1].data == expected


@scenario(run, 5)
async def test_connection_is_refused_without_listener_and_times_out_on_a_cut_link(
    world: World, /
) -> None:
    with pytest.raises(ConnectionRefusedError):
        await world.connect()
    await world.serve()
    world.network.cut("server", "client")
    with pytest.raises(TimeoutError):
        await world.connect()
    world.network.heal()
    await world.connect()


@scenario(run, 6)
async def test_one_way_cut_holds_bytes_until_it_heals(world: World, /) -> None:
    await world.serve()
    channel, collector = await world.connect()
    channel.send([b"hello"])
    await asyncio.sleep(1)
    world.network.cut("client", "server")
    channel.send([b" world"])
    world.accepted[0][0].send([b"back"])
    await asyncio.sleep(100)
    assert world.accepted[0][1].data == b"hello"
    assert collector.data == b"back"
    world.network.heal()
    await asyncio.sleep(1)
    assert world.accepted[0][1].data == b"hello world"


@scenario(run, 7)
async def test_killed_process_resets_its_connections(world: World, /) -> None:
    await world.serve()
    _, collector = await world.connect()
    await asyncio.sleep(1)
    world.server.kill()
    assert isinstance(await collector.closed, ConnectionResetError)
    assert not world.accepted[0][1].closed.done()


def test_host_without_power_is_silent_until_it_restarts() -> None:
    silent = 0
    for seed in range(10):
        world = World(seed)

        async def main(world: World = world) -> None:
            nonlocal silent
            await world.serve()
            channel, collector = await world.connect()
            await asyncio.sleep(1)
            world.server.lose_power()
            await asyncio.sleep(5)
            if collector.closed.done():
                return
            silent += 1
            channel.send([b"request"])
            await asyncio.sleep(3)
            assert not collector.closed.done()
            await world.serve()
            assert isinstance(await collector.closed, ConnectionResetError)

        world.run(main)
    assert 0 < silent < 10


@scenario(run, 8)
async def test_reset_closes_both_ends(world: World, /) -> None:
    await world.serve()
    _, collector = await world.connect()
    await asyncio.sleep(1)
    world.network.reset_all("client")
    assert isinstance(await collector.closed, ConnectionResetError)
    assert isinstance(await world.accepted[0][1].closed, ConnectionResetError)


@scenario(run, 9)
async def test_port_can_be_used_only_once(world: World, /) -> None:
    life = await world.serve()
    with pytest.raises(OSError, match="in use"):
        await life.runtime.transport.listen(SERVER, print)
    listener = await life.runtime.transport.listen(Address("0.0.0.0", 0), print)
    assert listener.address.host == "server"
    assert listener.address.port > 0
    listener.close()
