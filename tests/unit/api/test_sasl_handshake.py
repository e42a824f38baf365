import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [0, 1])
@scenario(run)
async def test_sasl_client_fails_immediately(bench: Bench, /, version: int, role: str) -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    response = await bench.ask(request, version, SaslHandshakeResponse, role=role)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert response.mechanisms == []
