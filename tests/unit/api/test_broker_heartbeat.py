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
async def test_a_broker_is_heard(bench: Bench, /, version: int) -> None:
    epoch = bench.broker.image.brokers[1].epoch

    async def beat(broker_epoch: int) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=broker_epoch,
            current_metadata_offset=bench.broker.image.offset,
        )
        return await bench.ask(request, version, BrokerHeartbeatResponse, role="controller")

    heard = await beat(epoch)
    assert (heard.error_code, heard.is_fenced, heard.is_caught_up) == (0, False, True)
    assert (await beat(epoch + 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert bench.controller.disconnected == []
    bench.session("controller").on_closed()
    assert bench.controller.disconnected == [(1, epoch)]
