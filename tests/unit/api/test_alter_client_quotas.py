import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", [0, 1])
@scenario(run)
async def test_every_entry_is_rejected_with_a_message(
    bench: Bench, /, version: int, role: str
) -> None:
    users = ["alice", None]
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name=user)],
                ops=[OpData(key="producer_byte_rate", value=1000.0)],
            )
            for user in users
        ]
    )
    response = await bench.ask(request, version, AlterClientQuotasResponse, role=role)
    assert [entry.entity[0].entity_name for entry in response.entries] == users
    for entry in response.entries:
        assert entry.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "not supported" in (entry.error_message or "")
    assert not bench.broker.image.client_quotas
