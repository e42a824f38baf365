from lograft.model.errors import ErrorCode
from lograft.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_registration_is_removed(bench: Bench, /) -> None:
    unknown = await bench.ask(UnregisterBrokerRequest(broker_id=9), 0, UnregisterBrokerResponse)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert unknown.error_message
    known = await bench.ask(UnregisterBrokerRequest(broker_id=1), 0, UnregisterBrokerResponse)
    assert known.error_code == 0
    assert bench.broker.image.brokers == {}
