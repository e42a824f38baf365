"""The services of a controller's listener work without a broker."""

import logging
from typing import cast

import pytest

from lograft.api.router import Router, served_apis
from lograft.model.exchange import CloseConnection, PendingReply
from lograft.model.seams import Channel
from lograft.model.types import NodeId
from lograft.simulation.cluster import SimulatedCluster
from lograft.wire.apis import Versions, request_class
from lograft.wire.errors import UnwritableMessage, WireError
from lograft.wire.headers import frame_request
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.properties.random_messages import RandomMessages
from tests.unit.broker.bench import Bench, Peer, run

APIS = {spec.name: spec for spec in served_apis("controller")}


@pytest.mark.parametrize("name", APIS)
def test_no_handler_of_a_controllers_listener_needs_a_broker(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec = APIS[name]

    async def scenario(bench: Bench) -> None:
        router = Router(bench.broker.shared, None, listener="CONTROLLER", role="controller")
        for version in range(spec.min_version, spec.max_version + 1):
            for seed in range(4):
                build = RandomMessages(f"{name} {version} {seed}", fullness=seed / 4).build
                message = build(request_class(spec.key), version)
                try:
                    frame = frame_request(message, version, correlation_id=7, client_id="me")[4:]
                    session = router(cast(Channel, Peer()))
                    reply = session.handle_frame(memoryview(bytearray(frame)))
                    if isinstance(reply, PendingReply):
                        await reply.response
                except (CloseConnection, WireError, UnwritableMessage):
                    continue

    run(scenario)
    # The quorum of this bench is a stub without responses.
    failures = [
        record.exc_info[1]
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.exc_info is not None
    ]
    assert not [each for each in failures if "listener" in str(each)], failures


def test_a_controller_without_the_broker_role_builds_no_broker() -> None:
    cluster = SimulatedCluster(nodes=2, seed=1, roles=("controller", "broker"))

    async def scenario() -> None:
        await cluster.start()
        with pytest.raises(AssertionError, match="not a broker"):
            cluster.node(1).broker  # noqa: B018
        assert cluster.node(1).shared.local_controller is not None
        assert cluster.node(2).broker.shared.local_controller is None
        # It can still send requests to brokers, for example for the groups that use a topic.
        answer = await cluster.node(1).shared.brokers.request(
            NodeId(2),
            ListGroupsRequest(),
            Versions(5, 5),
            ListGroupsResponse,
            timeout_ms=5_000,
            lane="test",
        )
        assert answer.error_code == 0

    cluster.run(scenario())
