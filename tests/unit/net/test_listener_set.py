"""Listeners that dynamic settings open and close, and dynamic limits, on real sockets."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lograft.model.exchange import HandlerFactory
from lograft.model.listeners import Endpoint
from lograft.model.seams import Address, Channel
from lograft.model.settings.broker import BrokerConfig, broker_config, with_dynamic
from lograft.net.listener_set import ListenerSet, resolve_hosts
from lograft.net.sockets import SocketTransport
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async
from tests.unit.net.event_loops import run_on_loop
from tests.unit.net.receivers import Collector, RunOnLoop
from tests.unit.net.test_server import framed, make_echo

PLAIN = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT"


def node(settings: dict[str, str] | None = None) -> BrokerConfig:
    return broker_config(
        (settings or {})
        | {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": PLAIN,
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": MAP,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
        }
    )


@asynccontextmanager
async def listening(config: BrokerConfig) -> AsyncIterator[ListenerSet]:
    workers = ThreadWorkers()
    async with asyncio.TaskGroup() as group:
        runtime = system_runtime(transport=SocketTransport(), workers=workers, task_group=group)
        listeners = ListenerSet(
            runtime,
            config,
            handlers=lambda _: make_echo,
            transport_of=lambda _, __: runtime.transport,
        )
        await listeners.open()
        listeners.serve("broker")
        yield listeners
        await listeners.stop()
    workers.close()


class Client:
    """One connection; `echo` returns when it has received a response."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.collector = Collector()
        channel.start(self.collector)

    @classmethod
    async def connect(cls, address: Address) -> "Client":
        return cls(await SocketTransport().connect(address, timeout_ms=5000))

    async def echo(self) -> None:
        self.channel.send([framed(b"x")])
        await self.collector.wait_bytes(5)


async def wait_until_open(listeners: ListenerSet, name: str, *, is_open: bool = True) -> None:
    await wait_until_async(lambda: (name in listeners.addresses) == is_open)


async def wait_until_reported(listeners: ListenerSet, text: str | None) -> None:
    """None: waits until all settings are in effect."""
    if text is None:
        await wait_until_async(lambda: not listeners.failures)
    else:
        await wait_until_async(lambda: any(text in failure for failure in listeners.failures))


@scenario(run_on_loop)
async def test_listener_opens_and_closes_while_others_continue() -> None:
    config = node()
    async with listening(config) as listeners:
        before = await Client.connect(listeners.addresses["PLAINTEXT"])
        texts = {"listeners": f"{PLAIN},EXTRA://127.0.0.1:0"}
        listeners.follow(with_dynamic(config, default={}, broker=texts))
        await wait_until_open(listeners, "EXTRA")
        address = listeners.addresses["EXTRA"]
        extra = await Client.connect(address)
        await extra.echo()
        listeners.follow(config)
        await wait_until_open(listeners, "EXTRA", is_open=False)
        await extra.collector.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(address)
        await before.echo()
        before.channel.abort()


def test_listener_that_cannot_open_does_not_affect_others(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        config = node()
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            async with listening(config) as listeners:
                # A second listener would protect the first, which would then accept one more.
                texts = {
                    "listeners": f"{PLAIN},EXTRA://127.0.0.1:{port}",
                    "max.connections": "1",
                }
                listeners.follow(with_dynamic(config, default={}, broker=texts))
                await wait_until_reported(listeners, f"EXTRA://127.0.0.1:{port} cannot open")
                first, second = [
                    await Client.connect(listeners.addresses["PLAINTEXT"]) for _ in range(2)
                ]
                await first.echo()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await second.echo()
                listeners.follow(config)
                await second.echo()
                await wait_until_reported(listeners, None)
                first.channel.abort()
                second.channel.abort()

    on_loop(main)
    assert re.search(r"listener EXTRA://127.0.0.1:\d+ cannot open: .*in use", caplog.text)


@pytest.mark.parametrize("name", ["PLAINTEXT", "CONTROLLER"])
def test_address_of_an_open_listener_does_not_change(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async def main() -> None:
        config = node()
        async with listening(config) as listeners:
            address = listeners.addresses[name]
            moved = re.sub(f"({name}://[^,]*):0", r"\1:7", PLAIN)
            texts = {"listeners": moved}
            listeners.follow(with_dynamic(config, default={}, broker=texts))
            await wait_until_reported(listeners, f"{name} stays at {address}, not at")
            # Reported as long as it applies, but logged once.
            more = texts | {"max.connections": "7"}
            listeners.follow(with_dynamic(config, default={}, broker=more))
            await wait_until_async(lambda: listeners._quotas["broker"].limits.connections_max == 7)
            await wait_until_reported(listeners, f"{name} stays at {address}, not at")
            assert listeners.addresses[name] == address
            listeners.follow(config)
            await wait_until_reported(listeners, None)

    on_loop(main)
    assert caplog.text.count("stays at") == 1


@scenario(run_on_loop)
async def test_listener_opens_when_its_port_becomes_free() -> None:
    config = node()
    async with listening(config) as listeners:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            texts = {"listeners": f"{PLAIN},EXTRA://127.0.0.1:{port}"}
            listeners.follow(with_dynamic(config, default={}, broker=texts))
            await wait_until_reported(listeners, "cannot open")
        await wait_until_open(listeners, "EXTRA")
        await wait_until_reported(listeners, None)


@scenario(run_on_loop)
async def test_invalid_host_names_do_not_affect_other_listeners() -> None:
    config = node()
    async with listening(config) as listeners:
        for texts in (
            {"listeners": f"{PLAIN},EXTRA://a..b:9"},
            {"max.connections.per.ip.overrides": "a..b:5"},
        ):
            listeners.follow(with_dynamic(config, default={}, broker=texts))
            await wait_until_reported(listeners, f"{next(iter(texts))}: ")
            assert "'a..b' is not a valid host name" in listeners.failures[0]
            client = await Client.connect(listeners.addresses["PLAINTEXT"])
            await client.echo()
            client.channel.abort()


def test_unexpected_error_is_reported_and_the_next_change_applied(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        config = node()
        async with listening(config) as listeners:
            listeners._handlers = dict[Endpoint, HandlerFactory]().__getitem__
            texts = {"listeners": f"{PLAIN},EXTRA://127.0.0.1:0"}
            listeners.follow(with_dynamic(config, default={}, broker=texts))
            await wait_until_reported(listeners, "KeyError")
            listeners._handlers = lambda _: make_echo
            listeners.follow(with_dynamic(config, default={}, broker=texts))
            await wait_until_open(listeners, "EXTRA")

    on_loop(main)
    assert "could not apply the settings of the listeners" in caplog.text


@scenario(run_on_loop)
async def test_requests_to_the_broker_do_not_lock_out_the_controller() -> None:
    config = node({"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1000"})
    async with listening(config) as listeners:
        listeners.serve("controller")
        request = framed(b"x" * 5_000)
        clients = [
            await Client.connect(listeners.addresses[name])
            for name in ("PLAINTEXT", "PLAINTEXT", "CONTROLLER")
        ]
        stalled, waiting, other = clients
        stalled.channel.send([request[:100]])
        await wait_until_async(lambda: listeners._budgets["broker"]._admitted)
        waiting.channel.send([request[:100]])
        await wait_until_async(lambda: listeners._budgets["broker"]._waiting)
        other.channel.send([request[:100]])
        await wait_until_async(lambda: listeners._budgets["controller"]._admitted)
        other.channel.send([request[100:]])
        await other.collector.wait_bytes(len(request))
        for client in clients:
            client.channel.abort()


@scenario(run_on_loop)
async def test_overrides_by_host_name_are_resolved() -> None:
    found, unknown = await resolve_hosts(
        {"localhost": 2, "0:0:0:0:0:0:0:1": 3, "no.such.invalid": 4}
    )
    assert found["127.0.0.1"] == 2
    assert found["::1"] == 3
    assert set(found) == {"127.0.0.1", "::1"}
    assert set(unknown) == {"no.such.invalid"}
