import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2, 3])
@scenario(run)
async def test_request_is_rejected_without_authorizer(
    bench: Bench, /, version: int, role: str
) -> None:
    response = await bench.ask(DescribeAclsRequest(), version, DescribeAclsResponse, role=role)
    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert response.error_message
