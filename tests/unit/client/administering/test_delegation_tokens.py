"""Tokens of a client that has logged in, and logins with them, in virtual time."""

from typing import Any

import pytest

from lograft.client import Admin, AuthenticationFailed, BrokerError
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.settings.jaas import SCRAM_MODULE
from lograft.testing import VirtualCluster
from tests.unit.client.test_authentication import play, settings_of

KEY = {"delegation_token_secret_key": "key"}


def test_the_life_of_a_token() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        async with Admin(settings_of(), runtime=cluster.client_runtime()) as admin:
            token = await admin.create_delegation_token(
                renewers=["User:bob"], max_lifetime_ms=60_000
            )
            assert (token.owner, token.requester) == ("User:alice", "User:alice")
            assert token.max_ms - token.issued_ms == 60_000
            assert token.password not in repr(token)
            assert await admin.describe_delegation_tokens() == [token]
            assert await admin.describe_delegation_tokens(owners=["User:carol"]) == []
            expires_ms = await admin.renew_delegation_token(token.hmac, period_ms=1_000)
            assert expires_ms < token.expires_ms
            other = await admin.create_delegation_token(owner="User:carol")
            assert (other.owner, other.requester) == ("User:carol", "User:alice")
            login: dict[str, Any] = settings_of("SCRAM-SHA-256")
            del login["sasl_username"], login["sasl_password"]
            login["sasl_jaas_config"] = (
                f'{SCRAM_MODULE} required username="{token.id}" password="{token.password}"'
                ' tokenauth="true";'
            )
            async with Admin(login, runtime=cluster.client_runtime()) as second:
                with pytest.raises(BrokerError) as raised:
                    await second.create_delegation_token()
                assert raised.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            await admin.expire_delegation_token(token.hmac)
            assert await admin.describe_delegation_tokens(owners=["User:alice"]) == [other]
            with pytest.raises(AuthenticationFailed):
                async with Admin(login, runtime=cluster.client_runtime()) as third:
                    await third.describe_delegation_tokens()
            with pytest.raises(InvalidInput, match="write it as User:name"):
                await admin.create_delegation_token(renewers=["bob"])

    play(scenario, **KEY)


def test_tokens_are_disabled_without_a_key() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        async with Admin(settings_of(), runtime=cluster.client_runtime()) as admin:
            with pytest.raises(BrokerError) as raised:
                await admin.describe_delegation_tokens()
            assert raised.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    play(scenario)
