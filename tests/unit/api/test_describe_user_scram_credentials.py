from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

SHA_256, SHA_512 = 1, 2


def record(user: str, mechanism: int, iterations: int) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=iterations,
    )


@scenario(run)
async def test_credentials_are_read_from_the_metadata(bench: Bench, /) -> None:
    async def send_request(*users: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        request = DescribeUserScramCredentialsRequest(
            users=[UserName(name=user) for user in users] or None
        )
        response = await bench.ask(request, 0, DescribeUserScramCredentialsResponse)
        assert response.error_code == 0
        assert all(
            bool(result.error_message) == bool(result.error_code) for result in response.results
        )
        return {
            result.user: (
                result.error_code,
                [(info.mechanism, info.iterations) for info in result.credential_infos],
            )
            for result in response.results
        }

    assert await send_request() == {}
    bench.controller.append(
        (
            record("alice", SHA_256, 4096),
            record("alice", SHA_512, 8192),
            record("bob", SHA_512, 4096),
        )
    )
    alice = (0, [(SHA_256, 4096), (SHA_512, 8192)])
    bob = (0, [(SHA_512, 4096)])
    assert await send_request() == {"alice": alice, "bob": bob}
    assert await send_request("bob") == {"bob": bob}
    assert await send_request("carol", "alice") == {
        "carol": (ErrorCode.RESOURCE_NOT_FOUND, []),
        "alice": alice,
    }
    assert await send_request("bob", "alice", "bob") == {
        "bob": (ErrorCode.DUPLICATE_RESOURCE, []),
        "alice": alice,
    }
