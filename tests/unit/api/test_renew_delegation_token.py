import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2])
@scenario(run)
async def test_anonymous_clients_have_no_token(bench: Bench, /, version: int, role: str) -> None:
    request = RenewDelegationTokenRequest(hmac=b"secret")
    response = await bench.ask(request, version, RenewDelegationTokenResponse, role=role)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.expiry_timestamp_ms == -1
