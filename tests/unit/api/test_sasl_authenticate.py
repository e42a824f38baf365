import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario(run)
async def test_error_message_names_the_listener(bench: Bench, /, version: int) -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    response = await bench.ask(request, version, SaslAuthenticateResponse)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "PLAINTEXT does not use SASL" in (response.error_message or "")
