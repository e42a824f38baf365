"""Requests to a broker that the active controller, on another machine, handles."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.api.forwarding import address_bytes, address_of
from lograft.api.router import Router
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.exchange import CloseConnection
from lograft.model.seams import Address
from lograft.model.settings.keys import AlterOperation
from lograft.net.connection_limits import ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.server import Server
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Machine
from lograft.simulation.network import Network
from lograft.wire.apis import ApiRanges, Versions
from lograft.wire.messages.alter_configs import (
    AlterableConfig as PlainConfig,
)
from lograft.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from lograft.wire.messages.alter_configs import (
    AlterConfigsResource as PlainResource,
)
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from lograft.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, StandInController, make_config

PORT = 9093


class World:
    """A broker (`near`) without controller, and the active controller (`far`)."""

    def __init__(self, *, ranges: ApiRanges | None = None) -> None:
        """`ranges` limits the API versions of `far`, as in an older release."""
        self.ranges = ranges
        self.loop = SimulatedLoop(1)
        self.network = Network(self.loop)
        self.near = self._bench("near")
        self.far = self._bench("far")

    def _bench(self, host: str) -> Bench:
        life = Machine(self.loop, self.network, host).boot()
        return Bench(life, make_config(), StandInController())

    async def start(self) -> None:
        await self.near.start()
        await self.far.life.run(self._serve(), name="far")
        self.near.quorum.is_leader = False
        self.near.quorum.endpoint = Address("far", PORT)

    async def _serve(self) -> None:
        await self.far.start()
        server = Server(
            "CONTROLLER",
            Router(
                self.far.broker.shared,
                None,
                listener="CONTROLLER",
                role="controller",
                ranges=self.ranges,
            ),
            runtime=self.far.life.runtime,
            quota=ConnectionQuota(),
            budget=FrameBudget(),
        )
        await server.start(Address("far", PORT))
        server.serve()


def run(scenario: Callable[[World], Awaitable[None]], *, ranges: ApiRanges | None = None) -> None:
    world = World(ranges=ranges)

    async def main() -> None:
        await world.start()
        await scenario(world)

    try:
        world.loop.run_until_complete(world.near.life.run(main(), name="main"))
    finally:
        world.loop.close()
    assert not world.near.life.failures


def creation(*names: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", range(2, 8))
@scenario(run)
async def test_topics_are_created_and_deleted_by_the_controller(
    world: World, /, version: int
) -> None:
    far = world.far.broker.image
    for expected in ([0, 0], [ErrorCode.TOPIC_ALREADY_EXISTS] * 2):
        reply = await world.near.ask(creation("a", "b"), version, CreateTopicsResponse)
        assert [topic.error_code for topic in reply.topics] == expected
    assert list(far.topic_ids) == ["a", "b"]
    assert world.near.broker.image.topics == {}
    request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=30_000)
    deleted = await world.near.ask(request, min(version, 5), DeleteTopicsResponse)
    assert [topic.error_code for topic in deleted.responses] == [0]
    assert list(far.topic_ids) == ["b"]


@scenario(run)
async def test_broker_handles_its_own_settings_and_forwards_the_others(world: World, /) -> None:
    await world.far.create_topic("a")

    def resource(kind: int, name: str, key: str, value: str) -> AlterConfigsResource:
        config = AlterableConfig(name=key, config_operation=AlterOperation.SET, value=value)
        return AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    logger = logging.getLogger("lograft.api.test_forwarding")
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(ResourceType.TOPIC, "a", "retention.ms", "1234"),
            resource(ResourceType.BROKER_LOGGER, "1", logger.name, "ERROR"),
            resource(ResourceType.BROKER, "2", "log.cleaner.threads", "2"),
            resource(ResourceType.TOPIC, "nope", "retention.ms", "1"),
        ]
    )
    reply = await world.near.ask(request, 1, IncrementalAlterConfigsResponse)
    assert [response.error_code for response in reply.responses] == [
        0, 0, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert logger.level == logging.ERROR
    assert world.far.broker.topic_config("a").retention_ms == 1234
    plain = AlterConfigsRequest(
        resources=[
            PlainResource(
                resource_type=ResourceType.TOPIC,
                resource_name="a",
                configs=[PlainConfig(name="retention.ms", value="99")],
            )
        ]
    )
    response = await world.near.ask(plain, 2, AlterConfigsResponse)
    assert [response.error_code for response in response.responses] == [0]
    assert world.far.broker.topic_config("a").retention_ms == 99


@scenario(run)
async def test_responses_with_only_an_error_code_are_returned(world: World, /) -> None:
    request = UnregisterBrokerRequest(broker_id=99)
    reply = await world.near.ask(request, 0, UnregisterBrokerResponse)
    assert reply.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert reply.error_message is not None
    quorum = await world.near.ask(DescribeQuorumRequest(), 2, DescribeQuorumResponse)
    assert quorum.error_code == 0


@scenario(run)
async def test_request_without_active_controller_times_out(world: World, /) -> None:
    world.far.controller.down = True
    clock = world.near.life.runtime.clock
    start_ms = clock.mono_ms()
    reply = await world.near.ask(creation("a", "b", timeout_ms=5_000), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in reply.topics] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert "no active controller responded within 5000 ms" in (reply.topics[0].error_message or "")
    assert clock.mono_ms() - start_ms <= 5_000


@scenario(run)
async def test_controller_that_becomes_active_in_time_responds(world: World, /) -> None:
    world.far.controller.down = True

    def come() -> None:
        world.far.controller.down = False

    world.loop.call_later(3, come)
    reply = await world.near.ask(creation("a"), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in reply.topics] == [0]


def test_handler_on_the_controller_sees_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def scenario(world: World) -> None:
        import lograft.api.unregister_broker as module

        original = module.handle

        async def handle(context: Any, request: Any) -> Any:
            seen.append((context.client_id, context.peer.host, context.principal, context.role))
            return await original(context, request)

        monkeypatch.setattr(module, "handle", handle)
        request = UnregisterBrokerRequest(broker_id=99)
        await world.near.ask(request, 0, UnregisterBrokerResponse, client_id="its-name")

    run(scenario)
    assert seen == [("its-name", "10.0.0.1", "User:ANONYMOUS", "controller")]


async def advertised_versions(world: World) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = await world.near.ask(request, 4, ApiVersionsResponse)
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@scenario(run, ranges={19: Versions(2, 6), 44: Versions(0, 0)})
async def test_forwarded_apis_are_advertised_in_versions_that_the_controller_serves(
    world: World, /
) -> None:
    before = await advertised_versions(world)
    assert (before[19], before[44]) == ((2, 7), (0, 1))
    # Any request shows which versions the controller serves.
    await world.near.ask(creation("a"), 6, CreateTopicsResponse)
    after = await advertised_versions(world)
    assert {key: after[key] for key in after if after[key] != before[key]} == {
        19: (2, 6),
        44: (0, 0),
    }
    assert before.keys() == after.keys()
    # A client that knows the versions of an earlier controller has to connect again.
    settings = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="a")]
    )
    with pytest.raises(CloseConnection, match="does not support version 7 of API 19"):
        await world.near.ask(creation("b"), 7, CreateTopicsResponse)
    with pytest.raises(CloseConnection, match="does not support version 1 of API 44"):
        await world.near.ask(settings, 1, IncrementalAlterConfigsResponse)
    # The versions of a controller that cannot be reached are unknown.
    world.near.quorum.endpoint = None
    assert await advertised_versions(world) == before


def test_ipv4_and_ipv6_addresses_are_encoded() -> None:
    for host in ("10.1.2.3", "::1", "2001:db8::7"):
        assert address_of(address_bytes(Address(host, 99))) == Address(host, 0)
    assert address_of(address_bytes(Address("fe80::1%eth0", 99))) == Address("fe80::1", 0)
    assert address_of(address_bytes(Address("a-name", 99))) == Address("0.0.0.0", 0)
    with pytest.raises(InvalidInput):
        address_of(b"12345")
