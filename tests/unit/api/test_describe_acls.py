import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorizer(version: int, role: str) -> None:
    async def scenario(bench: Bench) -> None:
        response = await bench.ask(DescribeAclsRequest(), version, DescribeAclsResponse, role=role)
        assert response.error_code == ErrorCode.SECURITY_DISABLED
        assert response.error_message

    run(scenario)
