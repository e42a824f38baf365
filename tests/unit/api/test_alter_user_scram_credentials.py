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
async def test_every_user_gets_one_result(bench: Bench, /, role: str) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="alice", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(
                name=user, mechanism=2, iterations=4096, salt=b"s", salted_password=b"p" * 64
            )
            for user in ("bob", "alice")
        ],
    )
    response = await bench.ask(request, 0, AlterUserScramCredentialsResponse, role=role)
    results = {result.user: ErrorCode(result.error_code) for result in response.results}
    assert results == {"alice": ErrorCode.RESOURCE_NOT_FOUND, "bob": ErrorCode.NONE}
    assert list(bench.broker.image.scram) == [(2, "bob")]


@scenario(run)
async def test_an_error_is_returned_for_every_user(bench: Bench, /) -> None:
    bench.controller.down = True
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="alice", mechanism=1)],
        upsertions=[ScramCredentialUpsertion(name="alice", mechanism=2)],
    )
    response = await bench.ask(request, 0, AlterUserScramCredentialsResponse, role="controller")
    assert [(result.user, result.error_code) for result in response.results] == [
        ("alice", ErrorCode.NOT_CONTROLLER)
    ]
