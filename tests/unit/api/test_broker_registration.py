from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


@pytest.mark.parametrize("version", range(5))
@scenario(run)
async def test_broker_registers(bench: Bench, /, version: int) -> None:
    request = BrokerRegistrationRequest(
        broker_id=2,
        cluster_id=CLUSTER_ID,
        incarnation_id=UUID(int=9),
        listeners=[Listener(name="PLAINTEXT", host="other", port=9092)],
        features=[
            Feature(name="metadata.version", min_supported_version=19, max_supported_version=30)
        ],
        rack=None,
        log_dirs=[UUID(int=5555)] if version >= 2 else [],
    )
    joined = await bench.ask(request, version, BrokerRegistrationResponse, role="controller")
    assert joined.error_code == 0
    assert bench.broker.image.brokers[2].epoch == joined.broker_epoch
    request.cluster_id = "another"
    rejected = await bench.ask(request, version, BrokerRegistrationResponse, role="controller")
    assert rejected.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert rejected.broker_epoch == -1
