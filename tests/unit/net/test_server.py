"""A listener with its connections over real sockets: limits, idle sweep, hostile peers, TLS."""

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from lograft.model.exchange import EncodedResponse, FrameHandler, PendingReply, Reply
from lograft.model.metrics import value_of
from lograft.model.seams import Address, Channel, FileSlice, Part, Transport
from lograft.net.connection_limits import ConnectionLimits, ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.server import ACCEPTED, CONNECTIONS, DELAYED, REJECTED, Server, ServerLimits
from lograft.net.sockets import SocketTransport
from lograft.net.tls import TlsTransport
from lograft.runtime.disk import RealDisk
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers
from tests.support.scenarios import scenario
from tests.unit.net.certificates import make_certificate
from tests.unit.net.event_loops import run_on_loop
from tests.unit.net.receivers import Collector, RunOnLoop

LOOPBACK = Address("127.0.0.1", 0)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def counts_of(server: Server) -> tuple[float, ...]:
    """Returns the numbers of open, accepted and rejected connections."""
    return tuple(value_of(server, metric) for metric in (CONNECTIONS, ACCEPTED, REJECTED))


class Echo:
    """Responds with the frame itself; b"park" waits forever."""

    cancelled = 0

    def __init__(self) -> None:
        self.frame_bytes_max = 100 << 20
        self.received_ns = 0

    def handle_frame(self, frame: memoryview) -> Reply:
        body = bytes(frame)
        return PendingReply(self._park()) if body == b"park" else EncodedResponse([framed(body)])

    async def _park(self) -> EncodedResponse | None:
        try:
            await asyncio.Event().wait()
        finally:
            Echo.cancelled += 1
        return None

    def on_frames_handled(self) -> None:
        pass

    def on_closed(self) -> None:
        pass


def make_echo(channel: Channel) -> FrameHandler:
    return Echo()


@asynccontextmanager
async def serving(
    *,
    quota: ConnectionQuota | None = None,
    budget: FrameBudget | None = None,
    limits: ServerLimits | None = None,
    transport: Transport | None = None,
    ready: bool = True,
) -> AsyncIterator[Server]:
    workers = ThreadWorkers()
    async with asyncio.TaskGroup() as group:
        server = Server(
            "PLAINTEXT",
            make_echo,
            runtime=system_runtime(transport=SocketTransport(), workers=workers, task_group=group),
            quota=quota or ConnectionQuota(),
            budget=budget or FrameBudget(),
            limits=limits,
            transport=transport,
        )
        await server.start(LOOPBACK)
        if ready:
            server.serve()
        yield server
        await server.stop()
    workers.close()


async def connect(server: Server, transport: Transport | None = None) -> tuple[Channel, Collector]:
    channel = await (transport or SocketTransport()).connect(server.address, timeout_ms=5000)
    collector = Collector()
    channel.start(collector)
    return channel, collector


@scenario(run_on_loop)
async def test_several_clients_are_served_at_once() -> None:
    async with serving() as server:
        clients = [await connect(server) for _ in range(20)]
        for number, (channel, _) in enumerate(clients):
            channel.send([framed(b"%d" % number), framed(bytes(200_000))])
        for number, (_, collector) in enumerate(clients):
            expected = framed(b"%d" % number) + framed(bytes(200_000))
            await collector.wait_bytes(len(expected))
            assert collector.received == expected
        assert value_of(server, CONNECTIONS) == 20
    for _, collector in clients:
        await collector.wait_closed()
    assert counts_of(server) == (0, 20, 0)


@scenario(run_on_loop)
async def test_early_clients_wait_until_the_node_serves() -> None:
    async with serving(ready=False) as server:
        channel, collector = await connect(server)
        channel.send([framed(b"early")])
        later, _ = await connect(server)
        assert value_of(server, CONNECTIONS) == 0
        server.serve()
        await collector.wait_bytes(len(framed(b"early")))
        later.abort()


@scenario(run_on_loop)
async def test_disconnect_cancels_the_waiting_request() -> None:
    Echo.cancelled = 0
    async with serving() as server:
        channel, _ = await connect(server)
        channel.send([framed(b"park")])
        while not Echo.cancelled:
            await asyncio.sleep(0)
            if value_of(server, ACCEPTED):
                channel.close()
        assert Echo.cancelled == 1


def test_address_beyond_its_limit_is_rejected(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        quota = ConnectionQuota(ConnectionLimits(per_ip_max=2))
        async with serving(quota=quota) as server:
            kept = [await connect(server) for _ in range(2)]
            for _ in range(3):
                _, rejected = await connect(server)
                await rejected.wait_closed()
            assert counts_of(server) == (2, 2, 3)
            # The next client gets the place of a closed connection.
            kept[0][0].close()
            while quota.total == 2:
                await asyncio.sleep(0)
            again, collector = await connect(server)
            again.send([framed(b"again")])
            await collector.wait_bytes(9)
            quota.update(ConnectionLimits(per_ip_max=2, per_ip_overrides={"127.0.0.1": 3}))
            more, collector = await connect(server)
            more.send([framed(b"again")])
            await collector.wait_bytes(9)
        assert quota.total == 0

    on_loop(main)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "PLAINTEXT: rejected a connection: max.connections.per.ip=2 is reached for 127.0.0.1"
    ]


@scenario(run_on_loop)
async def test_clients_wait_while_a_listener_is_at_its_limit() -> None:
    quota = ConnectionQuota(ConnectionLimits(listener_connections_max={"PLAINTEXT": 2}))
    async with serving(quota=quota) as server:
        kept = [await connect(server) for _ in range(2)]
        waiting = [await connect(server) for _ in range(3)]
        for channel, _ in waiting:
            channel.send([framed(b"late")])
        last, response = kept[1]
        last.send([framed(b"here")])
        await response.wait_bytes(8)
        assert counts_of(server) == (2, 2, 0)
        kept[0][0].close()
        await waiting[0][1].wait_bytes(8)
        assert value_of(server, CONNECTIONS) == 2
        # A higher limit takes effect immediately.
        quota.update(ConnectionLimits())
        for _, collector in waiting[1:]:
            await collector.wait_bytes(8)
        assert value_of(server, CONNECTIONS) == 4


@scenario(run_on_loop)
async def test_lower_limit_closes_the_least_recently_active_connection() -> None:
    quota = ConnectionQuota()
    async with serving(quota=quota) as server:
        idle, idle_end = await connect(server)
        busy, busy_end = await connect(server)
        idle.send([framed(b"1")])
        await idle_end.wait_bytes(5)
        await asyncio.sleep(0.005)  # the order of activity is measured in milliseconds
        busy.send([framed(b"2")])
        await busy_end.wait_bytes(5)
        quota.update(ConnectionLimits(connections_max=1))
        await idle_end.wait_closed()
        busy.send([framed(b"3")])
        await busy_end.wait_bytes(10)


@scenario(run_on_loop)
async def test_connections_beyond_the_rate_wait() -> None:
    quota = ConnectionQuota(ConnectionLimits(creation_rate=20))
    loop = asyncio.get_running_loop()
    async with serving(quota=quota) as server:
        begin = loop.time()
        clients = [await connect(server) for _ in range(25)]
        for channel, _ in clients:
            channel.send([framed(b"x")])
        for _, collector in clients:
            await collector.wait_bytes(5)
        # Twenty at once, then one every 50 ms.
        assert loop.time() - begin >= 0.2
        assert value_of(server, REJECTED) == 0


@scenario(run_on_loop)
async def test_idle_connections_are_closed() -> None:
    async with serving(limits=ServerLimits(idle_ms_max=40)) as server:
        _, idle = await connect(server)
        waiting_channel, waiting = await connect(server)
        waiting_channel.send([framed(b"park")])
        await idle.wait_closed()
        assert waiting.closed_with == []


@scenario(run_on_loop)
async def test_stopping_does_not_wait_for_a_peer_that_reads_nothing() -> None:
    async with serving() as server:
        channel, _ = await connect(server)
        channel.pause_reading()
        channel.send([framed(bytes(30 << 20))])
        while value_of(server, ACCEPTED) == 0 or channel.unsent_bytes:
            await asyncio.sleep(0.001)
        await server.stop(grace_ms=10)
        assert value_of(server, CONNECTIONS) == 0
        channel.abort()


def rss_bytes() -> int:
    with open("/proc/self/statm") as figures:
        return int(figures.read().split()[1]) * resource.getpagesize()


def test_announced_sizes_allocate_no_memory(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """CVE-2022-34917: memory may grow with the bytes received, but not with the announced size.
    Half of the peers announce more than the limit, the others exactly the limit, and then stop."""
    caplog.set_level(logging.CRITICAL)
    count = 1000

    async def main() -> None:
        async with serving() as server:
            address = (server.address.host, server.address.port)
            before = rss_bytes()
            with ExitStack() as stack:
                for number in range(count):
                    size = 2**31 - 1 if number % 2 else 100 << 20
                    peer = stack.enter_context(socket.create_connection(address))
                    peer.sendall(size.to_bytes(4, "big") + bytes(100))
                    if number % 50 == 0:
                        await asyncio.sleep(0)
                while value_of(server, ACCEPTED) < count:
                    await asyncio.sleep(0)
                while value_of(server, CONNECTIONS) > count // 2:
                    await asyncio.sleep(0)
                grown = rss_bytes() - before
                channel, collector = await connect(server)
                channel.send([framed(b"still served")])
                await collector.wait_bytes(16)
            assert grown < 50 << 20

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * count + 200
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
    try:
        on_loop(main)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def echo(server: Server, body: bytes) -> bytes:
    """Reconnects when its connection is closed, as a regular client does. (Bytes of the hostile
    clients may still be in the kernel, and be received after its own first bytes.)"""
    wanted = framed(body)

    def is_over(collector: Collector) -> bool:
        return len(collector.received) >= len(wanted) or bool(collector.closed_with)

    while True:
        channel, collector = await connect(server)
        channel.send([wanted])
        await collector.wait_until(partial(is_over, collector))
        if not collector.closed_with:
            channel.abort()
            return bytes(collector.received)


def test_incomplete_frames_stay_within_the_budget(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        budget = FrameBudget(bytes_max=4 << 20)
        async with serving(budget=budget) as server:
            clients = []
            for _ in range(20):
                channel, collector = await connect(server)
                channel.send([(50 << 20).to_bytes(4, "big"), bytes(1 << 20)])
                # All of it has arrived: the regular client that follows must be the youngest.
                while not collector.closed_with and not any(
                    connection.channel.peer == channel.local
                    and connection._buffer.pending_bytes == 4 + (1 << 20)
                    for connection in server._connections
                ):
                    await asyncio.sleep(0)
                clients.append((channel, collector))
            assert await echo(server, bytes(1 << 20)) == framed(bytes(1 << 20))
            assert budget.total <= 4 << 20
            for other, _ in clients:
                other.abort()

    on_loop(main)
    assert all("incomplete for too long" in record.getMessage() for record in caplog.records)
    assert caplog.records


@scenario(run_on_loop)
async def test_tls_listener_end_to_end(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    client_side = ssl.create_default_context(cafile=certificate)
    content = os.urandom(1_000_000)
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append(content)

    class SendsFile(Echo):
        def handle_frame(self, frame: memoryview) -> Reply:
            parts: list[Part] = [(1_000_000).to_bytes(4, "big"), FileSlice(file, 0, 1_000_000)]
            return (
                EncodedResponse(parts) if bytes(frame) == b"file" else super().handle_frame(frame)
            )

    def blocking_client(address: Address) -> bytes:
        with (
            socket.create_connection((address.host, address.port), timeout=20) as plain,
            client_side.wrap_socket(plain, server_hostname="localhost") as stream,
        ):
            stream.sendall(framed(b"blocking"))
            response = b""
            while len(response) < 12:
                response += stream.recv(100)
            return response

    tls = TlsTransport(SocketTransport(), server=server_side, client=client_side)
    async with serving(transport=tls) as server:
        server._handlers = lambda channel: SendsFile()
        channel, collector = await connect(server, tls)
        channel.send([framed(b"one"), framed(b"file"), framed(b"two")])
        expected = framed(b"one") + framed(content) + framed(b"two")
        await collector.wait_bytes(len(expected))
        assert collector.received == expected
        # Python's own blocking TLS client verifies the result.
        loop = asyncio.get_running_loop()
        response = await loop.run_in_executor(None, blocking_client, server.address)
        assert response == framed(b"blocking")


class OneConnection:
    """Accepts one connection; the others are closed after 50 ms."""

    def __init__(self) -> None:
        self.hosts: list[str] = []

    def record(self, host: str, now_ms: int) -> int:
        self.hosts.append(host)
        return 50 if len(self.hosts) > 1 else 0


@scenario(run_on_loop)
async def test_a_connection_above_the_rate_of_its_address_is_closed_later() -> None:
    rates = OneConnection()
    quota = ConnectionQuota(address_rates=rates)
    loop = asyncio.get_running_loop()
    async with serving(quota=quota) as server:
        channel, accepted = await connect(server)
        begin = loop.time()
        _, delayed = await connect(server)
        await delayed.wait_closed()
        assert loop.time() - begin >= 0.04
        channel.send([framed(b"x")])
        await accepted.wait_bytes(5)
        assert rates.hosts == ["127.0.0.1"] * 2
        assert quota.total == value_of(server, DELAYED) == 1
        # One that still waits is closed with the listener.
        _, last = await connect(server)
    await last.wait_closed()
