"""Hostile frames on SASL listeners, before and during every mechanism: no frame causes anything but
a response or a closed connection, and no client becomes a user whose secret it does not have."""

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Any, Final

import pytest

from lograft.api.context import ANONYMOUS
from lograft.model.exchange import CloseConnection
from lograft.model.settings.jaas import PLAIN_MODULE
from lograft.security.client_mechanisms import Credentials, start_exchange
from lograft.security.oauthbearer_client import OAuthBearerClientExchange
from lograft.security.scram_credentials import ScramMechanism, credential_of, salt_password
from lograft.wire.errors import WireError
from lograft.wire.headers import frame_request
from lograft.wire.messages.api_versions import ApiVersionsRequest
from lograft.wire.messages.list_groups import ListGroupsRequest
from lograft.wire.messages.metadata import MetadataRequest
from lograft.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest
from lograft.wire.records.delegation_token_record import DelegationTokenRecord
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from tests.fuzz import budget
from tests.support.scenarios import scenario
from tests.unit.api.test_sasl_session import (
    OAUTHBEARER,
    PASSWORD,
    PREFIX,
    SETTINGS,
    Connection,
    TokenListener,
)
from tests.unit.broker.bench import Bench, run

pytestmark = pytest.mark.fuzz

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOKEN_ID: Final = "aJHgJrZ6e1ty63eZg4Z2yw"
LOGINS_PER_SEED: Final = 40
#: All that the fuzzer has secrets of.
KNOWN: Final = frozenset({ANONYMOUS, "User:alice"})
ALL: Final[dict[str, Any]] = {
    **SETTINGS,
    **OAUTHBEARER,
    f"{PREFIX}sasl.enabled.mechanisms": ",".join(MECHANISMS),
    f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
    "delegation.token.secret.key": "key",
    "connection_failed_authentication_delay_ms": "0",
}


def add_users(bench: Bench) -> None:
    """Alice, whose password the fuzzer knows, and bob with a delegation token, of whom it only
    knows the names."""
    records: list[Any] = []
    for mechanism in ScramMechanism:
        for name, password in (("alice", PASSWORD), ("bob", "unknown to the fuzzer")):
            salted = salt_password(mechanism, password, b"salt", 4096)
            credential = credential_of(
                name, mechanism, salted_password=salted, salt=b"salt", iterations=4096
            )
            records.append(
                UserScramCredentialRecord(
                    name=name,
                    mechanism=mechanism,
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=4096,
                )
            )
    records.append(
        DelegationTokenRecord(
            owner="User:bob",
            requester="User:bob",
            max_timestamp=2**60,
            expiration_timestamp=2**60,
            token_id=TOKEN_ID,
        )
    )
    bench.controller.append(tuple(records))


class HostileLogin:
    """One connection, whose frames are those of a login with some changes."""

    def __init__(self, listener: TokenListener, chance: random.Random) -> None:
        self.listener = listener
        self.chance = chance
        self.connection: Connection = listener.connect()
        self.is_over = False

    async def run(self) -> None:
        chance = self.chance
        if chance.random() < 0.3:
            await self.send(ApiVersionsRequest(), 0)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            mechanism = chance.choice(MECHANISMS)
            await self.send(SaslHandshakeRequest(mechanism=self.other(mechanism)), 1)
            await self.exchange(mechanism)
            if chance.random() < 0.3:
                await self.send(chance.choice((MetadataRequest(topics=[]), ListGroupsRequest())), 4)
        assert self.connection.principal in KNOWN
        self.connection.handler.on_closed()

    async def exchange(self, mechanism: str) -> None:
        chance = self.chance
        if mechanism == "OAUTHBEARER":
            token = self.listener.message(sub=chance.choice(("alice", "alice", None)))
            exchange: Any = OAuthBearerClientExchange(token.decode().split(" ")[1].split("\x01")[0])
        else:
            user, password, is_token = chance.choice(
                (
                    ("alice", PASSWORD, False),
                    ("bob", PASSWORD, False),
                    ("eve", PASSWORD, False),
                    (TOKEN_ID, PASSWORD, True),
                    ("alice", PASSWORD, True),
                )
            )
            exchange = start_exchange(
                mechanism, Credentials(user, password, is_token), nonce=chance.randbytes(24)
            )
        message = exchange.start()
        for _ in range(4):
            if not isinstance(message, bytes) or self.is_over:
                return
            response = await self.send(SaslAuthenticateRequest(auth_bytes=self.mutate(message)), 2)
            if response is None or len(response) < 20:
                return
            # Error code, message, then the bytes of the server, which the client may not get right.
            message = exchange.step(response[15:])

    async def send(self, request: Any, version: int) -> bytes | None:
        if self.is_over:
            return None
        frame = frame_request(request, version, correlation_id=7, client_id="f")[4:]
        if self.chance.random() < 0.15:
            frame = self.mutate(frame)
        size_max = self.connection.handler.frame_bytes_max
        if len(frame) > size_max:
            # The connection closes before it reads the frame.
            self.is_over = True
            return None
        try:
            response = await self.connection.send(frame)
        except (CloseConnection, WireError):
            self.is_over = True
            return None
        self.is_over = self.connection.is_closed
        return response

    def other(self, mechanism: str) -> str:
        if self.chance.random() < 0.8:
            return mechanism
        return self.chance.choice((*MECHANISMS, "GSSAPI", "", "x" * 40, "plain", "PLAIN\0"))

    def mutate(self, data: bytes) -> bytes:
        """The same bytes half of the time."""
        chance = self.chance
        changes: list[Callable[[], bytes]] = [
            lambda: data[: chance.randrange(len(data) + 1)],
            lambda: data + chance.randbytes(chance.randrange(1, 50)),
            lambda: data * 2,
            lambda: chance.randbytes(chance.randrange(200)),
            lambda: b"",
            lambda: b"\x01",
            lambda: data.replace(b"alice", b"bob"),
            lambda: data.replace(b"n=", b"a=bob,n="),
            lambda: data.replace(b"\0alice", b"bob\0alice"),
            lambda: data.replace(b",,", b",a=bob,"),
            lambda: data.replace(b",tokenauth=true", b""),
            lambda: data + b",tokenauth=true",
            lambda: data + b"x" * chance.choice((1_000, 20_000, 200_000)),
            lambda: struct.pack(">i", 2**31 - 1) + data,
            lambda: self._flip(data),
        ]
        return data if chance.random() < 0.5 else chance.choice(changes)()

    def _flip(self, data: bytes) -> bytes:
        flipped = bytearray(data)
        for _ in range(self.chance.randrange(1, 4)):
            if flipped:
                flipped[self.chance.randrange(len(flipped))] ^= 1 << self.chance.randrange(8)
        return bytes(flipped)


@pytest.mark.timeout(0)
def test_hostile_logins(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: set[str] = set()

    def play(seed: int) -> None:
        async def body(bench: Bench, /) -> None:
            add_users(bench)
            listener = TokenListener(bench)
            await asyncio.sleep(0.1)
            chance = random.Random(seed)
            for _ in range(LOGINS_PER_SEED):
                login = HostileLogin(listener, chance)
                await login.run()
                outcomes.add(login.connection.principal)
            assert not listener.authentication._pending, "a closed connection is still counted"
            listener.authentication.close()

        scenario(lambda main: run(main, **ALL))(body)()

    for seed in budget.seeds(share=0.2):
        play(seed)
    assert outcomes == KNOWN, "the fuzzer never logged in, so it tests nothing"
    assert PASSWORD not in caplog.text
    assert "Traceback" not in caplog.text
