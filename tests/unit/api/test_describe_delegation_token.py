import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", [1, 2, 3])
@scenario(run)
async def test_anonymous_clients_see_no_tokens(bench: Bench, /, version: int) -> None:
    request = DescribeDelegationTokenRequest(owners=None)
    response = await bench.ask(request, version, DescribeDelegationTokenResponse)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.tokens == []
