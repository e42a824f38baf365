"""Tokens are created, renewed and removed by those who may, and by the time."""

from collections.abc import Callable
from typing import Any

import pytest

from lograft.metadata.delegation_tokens import (
    TokenRequester,
    create_delegation_token,
    expire_delegation_token,
    remove_expired_tokens,
    renew_delegation_token,
)
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.feature_levels import DELEGATION_TOKENS_SINCE, METADATA_VERSION
from lograft.model.settings.delegation_tokens import TokenSettings
from lograft.model.settings.keys import LONG_MAX
from lograft.security.delegation_tokens import token_hmac
from lograft.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lograft.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from lograft.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.unit.metadata.conftest import append

SETTINGS = TokenSettings(b"key", max_lifetime_ms=1000, expiry_time_ms=100)
MakeImage = Callable[..., MetadataImage]
ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"


class Tokens:
    """The tokens of a cluster; the id of a token is its number."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.settings: TokenSettings | None = SETTINGS
        self.now_ms = 5000
        self.number = 0

    def _requester(self, principal: str) -> TokenRequester:
        return TokenRequester(principal, self.settings, self.now_ms)

    def create(
        self, principal: str = ALICE, *renewers: str, **fields: Any
    ) -> CreateDelegationTokenResponse:
        self.number += 1
        named = [name.partition(":") for name in renewers]
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, _, name in named
            ],
            **{"max_lifetime_ms": -1, **fields},
        )
        result = create_delegation_token(
            self.image, request, self._requester(principal), token_id=str(self.number)
        )
        append(self.image, result.records)
        return result.reply

    def renew(self, principal: str, secret: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
        result = renew_delegation_token(self.image, request, self._requester(principal))
        append(self.image, result.records)
        return result.reply.error_code, result.reply.expiry_timestamp_ms

    def expire(self, principal: str, secret: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
        result = expire_delegation_token(self.image, request, self._requester(principal))
        append(self.image, result.records)
        return result.reply.error_code, result.reply.expiry_timestamp_ms


@pytest.fixture
def tokens(cluster: MakeImage) -> Tokens:
    return Tokens(cluster(1))


def test_a_token_is_created(tokens: Tokens) -> None:
    response = tokens.create(ALICE, BOB)
    assert response == CreateDelegationTokenResponse(
        principal_type="User",
        principal_name="alice",
        token_requester_principal_type="User",
        token_requester_principal_name="alice",
        issue_timestamp_ms=5000,
        expiry_timestamp_ms=5100,
        max_timestamp_ms=6000,
        token_id="1",
        hmac=token_hmac(b"key", "1"),
    )
    record = tokens.image.delegation_tokens["1"]
    assert (record.owner, record.requester, record.renewers) == (ALICE, ALICE, [BOB])
    assert (record.issue_timestamp, record.expiration_timestamp, record.max_timestamp) == (
        5000,
        5100,
        6000,
    )


@pytest.mark.parametrize(
    ("lifetime_ms", "expected"),
    [(-1, (5100, 6000)), (0, (5100, 6000)), (50, (5050, 5050)), (9999, (5100, 6000))],
)
def test_lifetimes(tokens: Tokens, lifetime_ms: int, expected: tuple[int, int]) -> None:
    response = tokens.create(max_lifetime_ms=lifetime_ms)
    assert (response.expiry_timestamp_ms, response.max_timestamp_ms) == expected


def test_times_do_not_overflow(tokens: Tokens) -> None:
    tokens.settings = TokenSettings(b"key", LONG_MAX, LONG_MAX)
    assert tokens.create().max_timestamp_ms == LONG_MAX


def test_a_token_for_another_user(tokens: Tokens) -> None:
    response = tokens.create(BOB, owner_principal_type="User", owner_principal_name="alice")
    assert (response.principal_name, response.token_requester_principal_name) == ("alice", "bob")
    assert tokens.image.delegation_tokens["1"].owner == ALICE
    # The requester may not change it, as in Kafka.
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.renew(BOB, response.hmac) == (mismatch, 0)


@pytest.mark.parametrize(
    ("renewers", "owner_type"), [(("Group:x",), None), ((BOB, ":bob"), None), ((), "Group")]
)
def test_other_types_of_principals(
    tokens: Tokens, renewers: tuple[str, ...], owner_type: str | None
) -> None:
    owner = {"owner_principal_type": owner_type, "owner_principal_name": "x"} if owner_type else {}
    response = tokens.create(ALICE, *renewers, **owner)
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert response.expiry_timestamp_ms == -1
    assert not tokens.image.delegation_tokens


def test_too_many_renewers(tokens: Tokens) -> None:
    assert tokens.create(ALICE, *([BOB] * 1001)).error_code == ErrorCode.INVALID_REQUEST


def test_tokens_are_renewed_up_to_their_maximum(tokens: Tokens) -> None:
    secret = tokens.create(ALICE, BOB).hmac
    tokens.now_ms = 5090
    assert tokens.renew(BOB, secret) == (0, 5190)
    assert tokens.renew(ALICE, secret, 20) == (0, 5110)
    assert tokens.renew(ALICE, secret, 999) == (0, 5190)
    for now_ms in range(5190, 5990, 100):
        tokens.now_ms = now_ms
        assert tokens.renew(ALICE, secret) == (0, min(now_ms + 100, 6000))
    tokens.now_ms = 6001
    assert tokens.renew(ALICE, secret) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.image.delegation_tokens["1"].renewers == [BOB]


def test_tokens_are_expired(tokens: Tokens) -> None:
    first, second = tokens.create(ALICE, BOB).hmac, tokens.create(ALICE).hmac
    assert tokens.expire(BOB, first, 30) == (0, 5030)
    assert tokens.expire(ALICE, first, 9999) == (0, 6000)
    assert tokens.expire(ALICE, first, 0) == (0, 5000)
    tokens.now_ms = 5001
    assert tokens.expire(ALICE, first, 9) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert set(tokens.image.delegation_tokens) == {"1", "2"}
    assert tokens.expire(BOB, first) == (0, 5001)
    assert tokens.expire(ALICE, second) == (0, 5001)
    assert not tokens.image.delegation_tokens


def test_only_owners_and_renewers_change_a_token(tokens: Tokens) -> None:
    secret = tokens.create(ALICE, BOB).hmac
    mismatch, missing = (
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    )
    for change in (tokens.renew, tokens.expire):
        assert change(EVE, secret) == (mismatch, 0)
        for wrong in (b"", b"1", secret[:-1], token_hmac(b"other key", "1")):
            assert change(ALICE, wrong) == (missing, 0)
    # As in Kafka, only a renewal says that the token of another principal has expired.
    tokens.now_ms = 9000
    assert tokens.renew(EVE, secret) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.expire(EVE, secret, 1) == (mismatch, 0)


def test_tokens_are_disabled_or_not_supported(tokens: Tokens) -> None:
    secret = tokens.create().hmac
    tokens.image.features[METADATA_VERSION] = DELEGATION_TOKENS_SINCE - 1
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert tokens.create().error_code == unsupported
    assert tokens.renew(ALICE, secret)[0] == tokens.expire(ALICE, secret)[0] == unsupported
    tokens.settings = None
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert tokens.create().error_code == disabled
    assert tokens.renew(ALICE, secret)[0] == tokens.expire(ALICE, secret)[0] == disabled


def test_expired_tokens_are_removed(tokens: Tokens) -> None:
    tokens.create(max_lifetime_ms=50)
    tokens.create()
    assert remove_expired_tokens(tokens.image, 5050).reply == []
    result = remove_expired_tokens(tokens.image, 5051)
    assert result.reply == ["1"]
    append(tokens.image, result.records)
    assert list(tokens.image.delegation_tokens) == ["2"]


def test_no_key_is_printed() -> None:
    assert "key" not in repr(TokenRequester(ALICE, SETTINGS, 0)).replace("keys", "")
