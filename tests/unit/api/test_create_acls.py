import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [1, 2, 3])
@scenario(run)
async def test_every_creation_is_rejected(bench: Bench, /, version: int, role: str) -> None:
    request = CreateAclsRequest(creations=[AclCreation(), AclCreation()])
    response = await bench.ask(request, version, CreateAclsResponse, role=role)
    assert [result.error_code for result in response.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all(result.error_message for result in response.results)
    assert not bench.broker.image.acls
