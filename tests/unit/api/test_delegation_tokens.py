"""Delegation tokens from their creation to the login, over the frames of a SASL listener."""

import asyncio
import logging
from typing import Any

import pytest

from lograft.api.delegation_tokens import may_request_tokens
from lograft.api.forwarding import read_response
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection
from lograft.security.authorization import (
    DELEGATION_TOKEN_DESCRIBE,
    USER_CREATE_TOKENS,
    USER_DESCRIBE_TOKENS,
)
from lograft.security.client_sasl import Finished
from lograft.security.delegation_tokens import token_hmac, token_password
from lograft.security.principals import encode_principal
from lograft.security.scram_client import ScramClientExchange
from lograft.security.scram_credentials import ScramMechanism
from lograft.wire.headers import frame_request
from lograft.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lograft.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from lograft.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from lograft.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from lograft.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
from tests.unit.api.test_sasl_session import (
    PASSWORD,
    Connection,
    Listener,
    sasl_scenario,
)
from tests.unit.broker.bench import Bench

KEY = "c4n4ry-key"
ENABLED = {
    "delegation.token.secret.key": KEY,
    "delegation.token.max.lifetime.ms": "10000",
    "delegation.token.expiry.time.ms": "5000",
}
BOB = CreatableRenewers(principal_type="User", principal_name="bob")


async def login(listener: Listener, user: str = "alice") -> Connection:
    connection = listener.connect()
    response = await connection.login(f"\0{user}\0{PASSWORD}".encode())
    assert response.error_code == ErrorCode.NONE
    return connection


async def token_login(
    listener: Listener, token_id: str, password: str, *, token_auth: bool = True
) -> tuple[Connection, Any]:
    """Returns the connection, and the last response of the login."""
    connection = listener.connect()
    await connection.handshake("SCRAM-SHA-256")
    exchange = ScramClientExchange(
        ScramMechanism.SCRAM_SHA_256, token_id, password, nonce=b"n" * 24, token_auth=token_auth
    )
    message: Any = exchange.start()
    while isinstance(message, bytes):
        response = await connection.authenticate(message)
        if response.error_code:
            return connection, response
        message = exchange.step(response.auth_bytes)
    assert message == Finished()
    return connection, response


async def create(connection: Connection, version: int = 3, **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, "renewers": [], **fields})
    return await connection.ask(request, version)


async def described(connection: Connection, *owners: str, version: int = 3) -> Any:
    named = [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=owner)
        for owner in owners
    ]
    return await connection.ask(DescribeDelegationTokenRequest(owners=named or None), version)


@sasl_scenario(**ENABLED)
async def test_a_client_logs_in_with_a_token_until_it_expires(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    listener = Listener(bench)
    alice = await login(listener)
    token = await create(alice, renewers=[BOB])
    assert token.error_code == ErrorCode.NONE
    assert token.hmac == token_hmac(KEY.encode(), token.token_id)
    password = token_password(token.hmac)
    connection, response = await token_login(listener, token.token_id, password)
    assert connection.principal == "User:alice"
    assert 4_000 < response.session_lifetime_ms <= 5_000
    assert await connection.is_served()
    # A token cannot create, prolong, end or show tokens.
    denied = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (await create(connection)).error_code == denied
    assert (await described(connection)).error_code == denied
    for request in (
        RenewDelegationTokenRequest(hmac=token.hmac),
        ExpireDelegationTokenRequest(hmac=token.hmac),
    ):
        changed = await connection.ask(request, 2)
        assert (changed.error_code, changed.expiry_timestamp_ms) == (denied, -1)
    await asyncio.sleep(5.1)
    with pytest.raises(CloseConnection, match="expired"):
        await connection.is_served()
    _, late = await token_login(listener, token.token_id, password)
    assert late.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    created = "event=create_token outcome=success principal=User:alice owner=User:alice"
    assert f"{created} token={token.token_id} " in caplog.text
    assert f"token={token.token_id} listener=OUTSIDE" in caplog.text
    assert 'reason="unknown delegation token"' in "\n".join(caplog.messages)
    assert password not in caplog.text
    assert KEY not in caplog.text


@sasl_scenario(**ENABLED)
async def test_tokens_are_renewed_and_expired(bench: Bench, /) -> None:
    listener = Listener(bench)
    alice, bob = await login(listener), await login(listener, "bob")
    token = await create(alice, renewers=[BOB])
    await asyncio.sleep(4)
    renewed = await bob.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), 2)
    assert renewed.error_code == ErrorCode.NONE
    assert renewed.expiry_timestamp_ms > token.expiry_timestamp_ms
    await asyncio.sleep(2)
    password = token_password(token.hmac)
    connection, _ = await token_login(listener, token.token_id, password)
    assert connection.principal == "User:alice"
    expired = await bob.ask(
        ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2
    )
    assert expired.error_code == ErrorCode.NONE
    assert token.token_id not in bench.broker.shared.image.delegation_tokens
    _, failed = await token_login(listener, token.token_id, password)
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@sasl_scenario(**ENABLED)
async def test_logins_with_a_token_that_fail(bench: Bench, /) -> None:
    listener = Listener(bench)
    token = await create(await login(listener))
    bench.controller.append(
        (
            DelegationTokenRecord(
                owner="Group:alice",
                requester="User:bob",
                max_timestamp=2**62,
                expiration_timestamp=2**62,
                token_id="group",
            ),
        )
    )
    password = token_password(token.hmac)
    for token_id, secret, token_auth in (
        (token.token_id, "wrong", True),
        ("unknown", password, True),
        ("alice", PASSWORD, True),
        (token.token_id, password, False),
        ("group", token_password(token_hmac(KEY.encode(), "group")), True),
    ):
        connection, response = await token_login(listener, token_id, secret, token_auth=token_auth)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.principal == "User:ANONYMOUS"


@sasl_scenario()
async def test_tokens_are_disabled_without_a_key(bench: Bench, /) -> None:
    alice = await login(Listener(bench))
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (await create(alice)).error_code == disabled
    assert (await described(alice)).error_code == disabled
    for request in (RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()):
        assert (await alice.ask(request, 2)).error_code == disabled


@pytest.mark.parametrize("version", [1, 2, 3])
@sasl_scenario(**ENABLED)
async def test_all_versions(bench: Bench, /, version: int) -> None:
    alice = await login(Listener(bench))
    token = await create(alice, version, renewers=[BOB])
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert token.token_requester_principal_name == ("alice" if version == 3 else "")
    (shown,) = (await described(alice, version=version)).tokens
    assert shown.hmac == token.hmac
    assert shown.renewers[0].principal_name == "bob"
    assert shown.token_requester_principal_name == ("alice" if version == 3 else "")
    assert (shown.issue_timestamp, shown.expiry_timestamp, shown.max_timestamp) == (
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
    )


@sasl_scenario(**ENABLED)
async def test_tokens_are_described_by_owner(bench: Bench, /) -> None:
    listener = Listener(bench)
    alice, bob = await login(listener), await login(listener, "bob")
    await create(alice)
    await create(bob)
    # Without an authorizer, everyone may see everything.
    assert len((await described(alice)).tokens) == 2
    assert len((await described(alice, "bob")).tokens) == 1
    assert (await described(alice, "carol")).tokens == []
    assert (await alice.ask(DescribeDelegationTokenRequest(owners=[]), 3)).tokens == []


@sasl_scenario(**ENABLED)
async def test_permissions(bench: Bench, /) -> None:
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    listener = Listener(bench)
    listener.router.authorizer = authorizer
    alice, bob = await login(listener), await login(listener, "bob")
    token = await create(alice)
    authorizer.granted["User:bob"] = set()
    assert (await described(bob)).tokens == []
    for permission in (DELEGATION_TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS):
        authorizer.granted["User:bob"] = {permission}
        authorizer.requested.clear()
        assert len((await described(bob)).tokens) == 1
        assert authorizer.requested[-1][2].name in (token.token_id, "User:alice")
    authorizer.granted["User:bob"] = set()
    assert len((await described(alice)).tokens) == 1
    # Renewers see a token too.
    await create(alice, renewers=[BOB])
    assert len((await described(bob)).tokens) == 1
    assert (await create(bob)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_allowed", [False, True])
@sasl_scenario(**ENABLED)
async def test_a_token_for_another_user_needs_a_permission(
    bench: Bench, /, is_allowed: bool
) -> None:
    authorizer = StandInAuthorizer()
    bench.authorize_with(authorizer)
    alice: Any = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    authorizer.granted["User:bob"] = {USER_CREATE_TOKENS} if is_allowed else set()
    frame = frame_request(
        CreateDelegationTokenRequest(max_lifetime_ms=-1, **alice), 3, correlation_id=7, client_id=""
    )
    envelope = EnvelopeRequest(
        request_data=frame[4:],
        request_principal=encode_principal("User:bob"),
        client_host_address=bytes(4),
    )
    reply = await bench.ask(envelope, 0, EnvelopeResponse, role="controller")
    assert reply.response_data is not None
    response: Any = read_response(reply.response_data, 38, 3)
    denied = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert response.error_code == (ErrorCode.NONE if is_allowed else denied)
    assert (response.principal_name, response.token_requester_principal_name) == ("alice", "bob")
    assert authorizer.requested[-1][2].name == "User:alice"


def test_a_request_of_a_token_stays_one_when_it_is_forwarded() -> None:
    class Forwarded:
        with_token = True
        is_forwarded = True

    assert not may_request_tokens(Forwarded())  # type: ignore[arg-type]
    Forwarded.with_token = False
    assert may_request_tokens(Forwarded())  # type: ignore[arg-type]


@pytest.mark.parametrize("with_token", [False, True])
@sasl_scenario(**ENABLED)
async def test_an_envelope_says_how_the_client_has_authenticated(
    bench: Bench, /, with_token: bool
) -> None:
    frame = frame_request(
        CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, correlation_id=7, client_id="c"
    )
    envelope = EnvelopeRequest(
        request_data=frame[4:],
        request_principal=encode_principal("User:alice", with_token=with_token),
        client_host_address=bytes(4),
    )
    reply = await bench.ask(envelope, 0, EnvelopeResponse, role="controller")
    assert reply.response_data is not None
    response = read_response(reply.response_data, 38, 3)
    assert isinstance(response, CreateDelegationTokenResponse)
    expected = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if with_token else ErrorCode.NONE
    assert response.error_code == expected
