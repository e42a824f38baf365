import pytest

from lograft.broker.errors import PeerUnreachable
from lograft.model.types import NodeId
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_itself_is_asked_without_a_connection(bench: Bench, /) -> None:
    asked = []

    async def call_local(message: Message, version: int) -> Message:
        asked.append((message, version))
        return HeartbeatResponse(error_code=3)

    link = bench.broker.brokers
    link.call_local = call_local
    request = HeartbeatRequest(group_id="g")
    response = await link.request(
        NodeId(1), request, Versions(3, 4), HeartbeatResponse, timeout_ms=100, lane="x"
    )
    assert response.error_code == 3
    assert asked == [(request, 4)]


@scenario(run)
async def test_a_broker_that_nobody_knows_is_not_asked(bench: Bench, /) -> None:
    with pytest.raises(PeerUnreachable):
        await bench.broker.brokers.request(
            NodeId(9),
            HeartbeatRequest(),
            Versions(3, 4),
            HeartbeatResponse,
            timeout_ms=100,
            lane="x",
        )
