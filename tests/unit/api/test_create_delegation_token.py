import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2, 3])
@scenario(run)
async def test_anonymous_clients_get_no_token(bench: Bench, /, version: int, role: str) -> None:
    request = CreateDelegationTokenRequest(max_lifetime_ms=1000)
    response = await bench.ask(request, version, CreateDelegationTokenResponse, role=role)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (response.principal_type, response.principal_name) == ("User", "ANONYMOUS")
    assert response.token_requester_principal_name == ("ANONYMOUS" if version >= 3 else "")
    assert response.max_timestamp_ms == -1
    assert not response.hmac
