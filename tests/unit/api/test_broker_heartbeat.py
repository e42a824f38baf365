import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_heartbeat_needs_the_current_broker_epoch(bench: Bench, /, version: int) -> None:
    epoch = bench.broker.image.brokers[1].epoch

    async def heartbeat(broker_epoch: int) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=broker_epoch,
            current_metadata_offset=bench.broker.image.offset,
        )
        return await bench.ask(request, version, BrokerHeartbeatResponse, role="controller")

    response = await heartbeat(epoch)
    assert (response.error_code, response.is_fenced, response.is_caught_up) == (0, False, True)
    assert (await heartbeat(epoch + 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert bench.controller.disconnected == []
    bench.session("controller").on_closed()
    assert bench.controller.disconnected == [(1, epoch)]
