import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@scenario(run)
async def test_every_user_is_rejected_once(bench: Bench, /, role: str) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="alice", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(name=user, mechanism=2, iterations=4096, salt=b"s")
            for user in ("bob", "alice")
        ],
    )
    response = await bench.ask(request, 0, AlterUserScramCredentialsResponse, role=role)
    assert [result.user for result in response.results] == ["alice", "bob"]
    for result in response.results:
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert "no SASL authentication" in (result.error_message or "")
    assert not bench.broker.image.scram
