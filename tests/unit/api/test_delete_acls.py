import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2, 3])
@scenario(run)
async def test_every_filter_is_rejected(bench: Bench, /, version: int, role: str) -> None:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()])
    response = await bench.ask(request, version, DeleteAclsResponse, role=role)
    codes = [filter_result.error_code for filter_result in response.filter_results]
    assert codes == [ErrorCode.SECURITY_DISABLED] * 2
    assert all(filter_result.error_message for filter_result in response.filter_results)
