"""Clients of the HTTP listener: authentication and authorization, in virtual time."""

import asyncio
import base64
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest

from lograft.api import http_access
from lograft.api.authentication import ListenerAuthentication
from lograft.api.http_access import ATTEMPTS_MAX, KNOWN_MAX, PERIOD_MS, ClusterAccess
from lograft.api.security_log import SecurityLog
from lograft.model.http_access import Refusal
from lograft.model.seams import Address
from lograft.model.settings.jaas import PLAIN_MODULE
from lograft.security.acls import ALL_USERS
from lograft.security.authorization import CLUSTER_DESCRIBE
from lograft.security.scram_credentials import (
    ScramMechanism,
    credential_of,
    is_password_of,
    salt_password,
)
from lograft.security.standard_authorizer import StandardAuthorizer
from lograft.wire.records.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecord,
)
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from tests.support import identity_provider
from tests.support.scenarios import scenario
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
from tests.unit.broker.bench import Bench, run

PREFIX = "listener.name.http."
JWKS_URL = "https://idp.example/keys"
SETTINGS = {
    f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
    f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_paula="plain-secret";',
    "sasl.oauthbearer.jwks.endpoint.url": JWKS_URL,
    "lograft.oauthbearer.allowed.urls": JWKS_URL,
    "sasl.oauthbearer.expected.issuer": identity_provider.ISSUER,
    "sasl.oauthbearer.expected.audience": identity_provider.AUDIENCE,
    "connection_failed_authentication_delay_ms": "250",
}
PEER = Address("10.0.0.1", 4711)
MECHANISM = ScramMechanism.SCRAM_SHA_512


class World:
    def __init__(self, bench: Bench, authorizer: Any = None) -> None:
        self.bench = bench
        shared = bench.broker.shared
        self.clock = shared.clock
        self.key = identity_provider.rsa_key()
        authentication = ListenerAuthentication(
            shared, "HTTP", SecurityLog(shared.clock), read_key_set=self._read_key_set
        )
        self.access = ClusterAccess(authentication, authorizer)
        #: Passwords that were verified by a worker.
        self.verifications = 0

    async def _read_key_set(self, *_: object) -> bytes:
        return identity_provider.key_set(identity_provider.public_entry(self.key, kid="first"))

    def set_password(self, user: str, password: str) -> None:
        salted = salt_password(MECHANISM, password, b"salt", 4096)
        credential = credential_of(
            user, MECHANISM, salted_password=salted, salt=b"salt", iterations=4096
        )
        record = UserScramCredentialRecord(
            name=user,
            mechanism=MECHANISM,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=4096,
        )
        self.bench.controller.append((record,))

    def remove(self, user: str) -> None:
        self.bench.controller.append(
            (RemoveUserScramCredentialRecord(name=user, mechanism=MECHANISM),)
        )

    def token(self, **claims: Any) -> str:
        usual = identity_provider.claims(self.clock.wall_ms() / 1000, **claims)
        return identity_provider.token(usual, key=self.key)

    async def status(self, *authorization: bytes, peer: Address = PEER) -> int:
        refusal = await self.access.check(authorization, peer)
        return 200 if refusal is None else int(refusal.status)

    async def ask(self, user: str, password: str, peer: Address = PEER) -> int:
        return await self.status(basic(user, password), peer=peer)


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


@pytest.fixture(autouse=True)
def _count_verifications(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    counted: list[str] = []

    def verify(credential: Any, password: str) -> bool:
        counted.append(password)
        return is_password_of(credential, password)

    monkeypatch.setattr(http_access, "is_password_of", verify)
    return counted


@pytest.fixture
def verified(_count_verifications: list[str]) -> list[str]:
    """The passwords that were verified by a worker, in order."""
    return _count_verifications


def http_scenario(**settings: str) -> Callable[[Any], Any]:
    values: dict[str, Any] = SETTINGS | settings
    return scenario(lambda body: run(body, **values))


@http_scenario()
async def test_a_client_without_credentials_learns_the_schemes(bench: Bench, /) -> None:
    refusal = await World(bench).access.check([], PEER)
    assert refusal == Refusal(
        HTTPStatus.UNAUTHORIZED,
        "Authentication is required.",
        ['Basic realm="lograft", charset="UTF-8"', 'Bearer realm="lograft"'],
    )


@http_scenario()
async def test_users_of_scram_and_plain(bench: Bench, /, verified: list[str]) -> None:
    world = World(bench)
    world.set_password("alice", "pencil: ü")
    assert await world.ask("alice", "pencil: ü") == 200
    assert await world.ask("paula", "plain-secret") == 200
    assert await world.ask("alice", "plain-secret") == 401
    assert await world.ask("paula", "pencil: ü") == 401
    assert await world.ask("eve", "pencil: ü") == 401
    # A user that does not exist costs as much as others.
    assert verified == ["pencil: ü", "plain-secret", "pencil: ü", "pencil: ü"]


@http_scenario()
async def test_a_known_password_is_not_computed_again(bench: Bench, /, verified: list[str]) -> None:
    world = World(bench)
    world.set_password("alice", "pencil")
    for _ in range(50):
        assert await world.ask("alice", "pencil") == 200
    assert verified == ["pencil"]
    world.bench.controller.append(
        (RemoveUserScramCredentialRecord(name="other", mechanism=MECHANISM),)
    )
    assert await world.ask("alice", "pencil") == 200
    assert verified == ["pencil"]


@http_scenario()
async def test_a_changed_or_removed_password_is_rejected_at_once(bench: Bench, /) -> None:
    world = World(bench)
    world.set_password("alice", "pencil")
    assert await world.ask("alice", "pencil") == 200
    world.set_password("alice", "crayon")
    assert await world.ask("alice", "pencil") == 401
    assert await world.ask("alice", "crayon") == 200
    world.remove("alice")
    assert await world.ask("alice", "crayon") == 401


@http_scenario()
async def test_a_password_that_changes_during_the_verification(
    bench: Bench, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(bench)
    world.set_password("alice", "pencil")

    def verify(credential: Any, password: str) -> bool:
        world.remove("alice")
        return is_password_of(credential, password)

    monkeypatch.setattr(http_access, "is_password_of", verify)
    assert await world.ask("alice", "pencil") == 401


@http_scenario()
async def test_tokens_of_an_identity_provider(bench: Bench, /) -> None:
    world = World(bench)
    await asyncio.sleep(0.1)
    token = world.token()
    assert await world.status(b"bearer " + token.encode()) == 200
    refusal = await world.access.check([b"Bearer " + world.token(aud="other").encode()], PEER)
    assert refusal is not None
    assert refusal.challenges[1] == 'Bearer realm="lograft", error="invalid_token"'
    assert await world.status(b"Bearer not a token") == 401
    await asyncio.sleep(700)
    assert await world.status(b"Bearer " + token.encode()) == 401, "it has expired"


@http_scenario(**{f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-512"})
async def test_mechanisms_that_are_not_enabled(bench: Bench, /) -> None:
    world = World(bench)
    refusal = await world.access.check([], PEER)
    assert refusal is not None
    assert refusal.challenges == ['Basic realm="lograft", charset="UTF-8"']
    assert await world.ask("paula", "plain-secret") == 401
    assert await world.status(b"Bearer " + world.token().encode()) == 401


@pytest.mark.parametrize(
    "authorization",
    [
        [b""],
        [b"Basic"],
        [b"Basic ???"],
        [b"Basic " + base64.b64encode(b"alice")],
        [b"Basic " + base64.b64encode(b":pencil")],
        [b"Basic " + base64.b64encode(b"alice:")],
        [b"Basic " + base64.b64encode(b"alice:pencil\0")],
        [b"Basic " + base64.b64encode(b"\xff:\xff")],
        [b"Digest x"],
        [b"\xff\xfe x"],
        [basic("alice", "pencil")] * 2,
    ],
)
@http_scenario()
async def test_other_headers_are_rejected(
    bench: Bench, /, authorization: list[bytes], verified: list[str]
) -> None:
    world = World(bench)
    world.set_password("alice", "pencil")
    assert await world.status(*authorization) == 401
    assert verified == []


@http_scenario()
async def test_a_failure_is_delayed_and_logged_without_the_password(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(bench)
    world.set_password("alice", "pencil")
    before_ms = world.clock.mono_ms()
    assert await world.ask("alice", "c4n4ry") == 401
    assert world.clock.mono_ms() - before_ms >= 250
    assert caplog.records[-1].getMessage() == (
        'event=login outcome=failure reason="wrong password" user=alice listener=HTTP'
        " client=10.0.0.1:4711"
    )
    assert await world.ask("alice", "pencil") == await world.ask("alice", "pencil") == 200
    assert caplog.text.count("outcome=success principal=User:alice") == 1
    assert "c4n4ry" not in caplog.text
    assert "pencil" not in caplog.text


@http_scenario()
async def test_too_many_failures_of_a_host_are_not_verified(
    bench: Bench, /, verified: list[str]
) -> None:
    world = World(bench)
    world.set_password("alice", "pencil")
    world.set_password("bob", "crayon")
    assert await world.ask("alice", "pencil") == 200
    results = await asyncio.gather(*(world.ask("alice", str(number)) for number in range(30)))
    assert sorted(results) == [401] * ATTEMPTS_MAX + [429] * (30 - ATTEMPTS_MAX)
    assert len(verified) == 1 + ATTEMPTS_MAX
    assert await world.ask("bob", "crayon") == 429
    refusal = await world.access.check([basic("bob", "crayon")], PEER)
    assert refusal is not None
    assert refusal.retry_after_seconds == PERIOD_MS // 1000
    # What is known, and other hosts, are served.
    assert await world.ask("alice", "pencil") == 200
    assert await world.ask("bob", "crayon", Address("10.0.0.2", 1)) == 200
    await asyncio.sleep(PERIOD_MS / 1000)
    assert await world.ask("alice", "0") == 401


@http_scenario()
async def test_logins_that_succeed_are_not_limited(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(bench)
    for _ in range(3 * ATTEMPTS_MAX):
        assert await world.ask("paula", "plain-secret") == 200
    assert caplog.text.count("principal=User:paula") == 1, "only the first use is logged"
    await asyncio.sleep(0.1)
    for number in range(3 * ATTEMPTS_MAX):
        token = world.token(jti=str(number))
        assert await world.status(b"Bearer " + token.encode()) == 200


@http_scenario()
async def test_what_is_remembered_is_bounded(
    bench: Bench, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_access, "KNOWN_MAX", 3)
    monkeypatch.setattr(http_access, "HOSTS_MAX", 3)
    assert KNOWN_MAX > 3
    world = World(bench)
    await asyncio.sleep(0.1)
    for number in range(10):
        token = world.token(jti=str(number))
        assert await world.status(b"Bearer " + token.encode()) == 200
        await world.ask("eve", "guess", Address(f"10.0.0.{number}", 1))
    assert len(world.access._known) == 3
    assert len(world.access._attempts) == 3


@http_scenario()
async def test_the_user_needs_describe_on_the_cluster(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer = StandInAuthorizer()
    world = World(bench, authorizer)
    assert await world.ask("paula", "plain-secret") == 200
    ((principal, host, need),) = authorizer.requested
    assert (principal, host, need.name) == ("User:paula", "10.0.0.1", "kafka-cluster")
    authorizer.denied.add(CLUSTER_DESCRIBE)
    assert await world.ask("paula", "plain-secret") == 403
    assert "event=authorization outcome=failure principal=User:paula" in caplog.text
    assert ALL_USERS not in caplog.text


@http_scenario()
async def test_before_the_acls_are_known_only_super_users_are_served(bench: Bench, /) -> None:
    authorizer = StandardAuthorizer(["User:paula"])
    world = World(bench, authorizer)
    world.set_password("alice", "pencil")
    assert await world.ask("paula", "plain-secret") == 200
    assert await world.ask("alice", "pencil") == 503
    authorizer.complete_load()
    assert await world.ask("alice", "pencil") == 403
