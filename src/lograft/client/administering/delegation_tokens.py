"""Requests about delegation tokens, with which others can log in as a user for a limited time."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import raise_for
from lograft.model.errors import InvalidInput
from lograft.security.delegation_tokens import token_password
from lograft.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lograft.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from lograft.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from lograft.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

#: The broker's default for a time.
DEFAULT_MS: Final = -1
#: Versions from this one on contain the requester, and the owner of a new token.
WITH_REQUESTER: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A client logs in with it through SCRAM: with `id` as its user name, `password` as its
    password, and tokenauth="true" in sasl.jaas.config.

    try:
        token = await admin.create_delegation_token(renewers=["User:bob"])
        print(token.id, token.owner, token.expires_ms)
    except ClientError as error:
        print("this client cannot create tokens:", error)
    """

    id: str
    hmac: bytes = field(repr=False)
    #: Principals: "User:alice".
    owner: str
    #: "" if the broker is older than Kafka 3.3.
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    #: Without another renewal.
    expires_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        return token_password(self.hmac)


async def create_delegation_token(
    driver: RequestDriver, renewers: Iterable[str], max_lifetime_ms: int, owner: str | None
) -> DelegationToken:
    names = list(as_iterable(renewers))
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_split, names)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = _split(owner)
    response = await driver.result_of(
        request,
        CreateDelegationTokenResponse,
        lambda response: raise_for(response.error_code, "delegation token"),
        at_least=0 if owner is None else WITH_REQUESTER,
    )
    return DelegationToken(
        id=response.token_id,
        hmac=bytes(response.hmac),
        owner=f"{response.principal_type}:{response.principal_name}",
        requester=_join(
            response.token_requester_principal_type, response.token_requester_principal_name
        ),
        renewers=tuple(names),
        issued_ms=response.issue_timestamp_ms,
        expires_ms=response.expiry_timestamp_ms,
        max_ms=response.max_timestamp_ms,
    )


async def renew_delegation_token(driver: RequestDriver, hmac: bytes, period_ms: int) -> int:
    response = await driver.result_of(
        RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms),
        RenewDelegationTokenResponse,
        lambda response: raise_for(response.error_code, "delegation token"),
    )
    return response.expiry_timestamp_ms


async def expire_delegation_token(driver: RequestDriver, hmac: bytes, period_ms: int) -> int:
    response = await driver.result_of(
        ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
        ExpireDelegationTokenResponse,
        lambda response: raise_for(response.error_code, "delegation token"),
    )
    return response.expiry_timestamp_ms


async def describe_delegation_tokens(
    driver: RequestDriver, owners: Iterable[str] | None
) -> list[DelegationToken]:
    named = None
    if owners is not None:
        named = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_split, as_iterable(owners))
        ]
    response = await driver.result_of(
        DescribeDelegationTokenRequest(owners=named),
        DescribeDelegationTokenResponse,
        lambda response: raise_for(response.error_code, "delegation tokens"),
    )
    return [
        DelegationToken(
            id=token.token_id,
            hmac=bytes(token.hmac),
            owner=f"{token.principal_type}:{token.principal_name}",
            requester=_join(
                token.token_requester_principal_type, token.token_requester_principal_name
            ),
            renewers=tuple(
                f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers
            ),
            issued_ms=token.issue_timestamp,
            expires_ms=token.expiry_timestamp,
            max_ms=token.max_timestamp,
        )
        for token in response.tokens
    ]


def _split(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise InvalidInput(f"{principal!r} is not a principal: write it as User:name")
    return kind, name


def _join(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""
