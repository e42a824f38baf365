import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [0, 1])
def test_a_sasl_client_gets_an_answer_at_once(version: int, role: str) -> None:
    async def scenario(bench: Bench) -> None:
        request = SaslHandshakeRequest(mechanism="PLAIN")
        response = await bench.ask(request, version, SaslHandshakeResponse, role=role)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert response.mechanisms == []

    run(scenario)
