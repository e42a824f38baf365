"""Logins over the frames of a connection, in virtual time."""

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Callable
from typing import Any

import pytest

from lograft.api.authentication import ListenerAuthentication
from lograft.api.context import ANONYMOUS
from lograft.api.oauthbearer_keys import ReadKeySet
from lograft.api.router import Router
from lograft.api.sasl_session import FIRST_FRAME_BYTES_MAX, SaslSession
from lograft.api.security_log import SecurityLog
from lograft.model.errors import ErrorCode, InvalidConfig
from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply
from lograft.model.seams import Address, FileSlice
from lograft.model.security_context import ContextFailed, ServerKey
from lograft.model.settings.jaas import KERBEROS_MODULE, PLAIN_MODULE
from lograft.model.settings.oauthbearer import UNSECURED_HANDLER
from lograft.security.oauthbearer_client import OAuthBearerClientExchange
from lograft.security.scram_credentials import ScramMechanism, credential_of, salt_password
from lograft.wire.apis import response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.api_versions import ApiVersionsRequest
from lograft.wire.messages.list_groups import ListGroupsRequest
from lograft.wire.messages.metadata import MetadataRequest
from lograft.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from lograft.wire.messages.sasl_handshake import SaslHandshakeRequest
from lograft.wire.records.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecord,
)
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from tests.support import identity_provider
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

LISTENER = "OUTSIDE"
PREFIX = "listener.name.outside."
PASSWORD = "c4n4ry-secret"
SETTINGS = {
    "listeners": "PLAINTEXT://localhost:9092,OUTSIDE://localhost:9094,CONTROLLER://localhost:9093",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ",OUTSIDE:SASL_PLAINTEXT",
    f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}"'
    f' user_bob="{PASSWORD}";',
    "connection_failed_authentication_delay_ms": "250",
    "lograft_authentication_timeout_ms": "3000",
}
ALICE = f"\0alice\0{PASSWORD}".encode()
WRONG = b"\0alice\0guess"


class FakeChannel:
    def __init__(self) -> None:
        self.peer = Address("10.0.0.1", 4711)
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class Listener:
    """A SASL listener of the bench."""

    def __init__(
        self,
        bench: Bench,
        read_key_set: ReadKeySet | None = None,
        load_server_key: Callable[[str, str], ServerKey] | None = None,
    ) -> None:
        shared = bench.broker.shared
        self.clock = shared.clock
        self.authentication = ListenerAuthentication(
            shared,
            LISTENER,
            SecurityLog(shared.clock),
            read_key_set=read_key_set,
            load_server_key=load_server_key,
        )
        self.router = Router(
            shared,
            bench.broker,
            listener=LISTENER,
            link=bench.broker.link,
            authentication=self.authentication,
        )

    def connect(self) -> "Connection":
        return Connection(self)


class Connection:
    def __init__(self, listener: Listener) -> None:
        self.channel = FakeChannel()
        handler = listener.router.accept(self.channel)  # type: ignore[arg-type]
        assert isinstance(handler, SaslSession)
        self.handler = handler
        self.clock = listener.clock
        self.is_closed = False

    async def send(self, frame: bytes) -> bytes:
        """Returns the bytes of the response."""
        reply: Any = self.handler.handle_frame(memoryview(bytearray(frame)))
        if isinstance(reply, PendingReply):
            reply = await reply.response
        if isinstance(reply, bytes):
            return reply
        assert isinstance(reply, EncodedResponse)
        self.is_closed = reply.closes
        parts = [part for part in reply.parts if not isinstance(part, FileSlice)]
        return b"".join(parts)

    async def ask(self, request: Message, version: int) -> Any:
        frame = frame_request(request, version, correlation_id=7, client_id="c")[4:]
        data = (await self.send(frame))[4:]
        header_version = response_header_version(request.KEY, version)
        _, position = read_response_header(data, header_version)
        return read_all(response_class(request.KEY), version, data, position)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=message), version)

    async def login(self, message: bytes = ALICE) -> Any:
        assert (await self.handshake()).error_code == ErrorCode.NONE
        return await self.authenticate(message)

    @property
    def principal(self) -> str:
        return self.handler._session._principal

    async def is_served(self) -> bool:
        response = await self.ask(ListGroupsRequest(), 4)
        return bool(response.error_code == ErrorCode.NONE)


def sasl_scenario(**settings: str) -> Callable[[Any], Any]:
    values: dict[str, Any] = SETTINGS | settings
    return scenario(lambda body: run(body, **values))


@sasl_scenario()
async def test_a_client_logs_in_with_plain(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    versions = await connection.ask(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3
    )
    assert versions.error_code == ErrorCode.NONE
    handshake = await connection.handshake()
    assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
    response = await connection.authenticate(ALICE)
    assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b"")
    assert response.session_lifetime_ms == 0
    assert connection.principal == "User:alice"
    assert await connection.is_served()


@pytest.mark.parametrize("version", [0, 1, 2])
@sasl_scenario()
async def test_every_version_of_sasl_authenticate(bench: Bench, /, version: int) -> None:
    connection = Listener(bench).connect()
    await connection.handshake()
    assert (await connection.authenticate(ALICE, version)).error_code == ErrorCode.NONE
    assert await connection.is_served()


@sasl_scenario()
async def test_messages_without_headers_after_the_old_handshake(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    assert (await connection.handshake(version=0)).error_code == ErrorCode.NONE
    assert await connection.send(ALICE) == bytes(4)
    assert connection.principal == "User:alice"
    assert await connection.is_served()


@sasl_scenario()
async def test_a_failure_without_headers_only_closes_the_connection(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.handshake(version=0)
    assert await connection.send(WRONG) == b""
    assert connection.is_closed
    assert connection.principal == ANONYMOUS


@sasl_scenario()
async def test_a_failure_is_answered_after_a_delay(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    connection = Listener(bench).connect()
    before_ms = connection.clock.mono_ms()
    response = await connection.login(WRONG)
    assert connection.clock.mono_ms() - before_ms == 250
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "Authentication failed: Invalid username or password"
    assert connection.is_closed
    assert connection.principal == ANONYMOUS
    with pytest.raises(CloseConnection):
        await connection.is_served()
    assert caplog.records[-1].getMessage() == (
        'event=login outcome=failure reason="wrong password" user=alice mechanism=PLAIN'
        " listener=OUTSIDE client=10.0.0.1:4711"
    )
    assert "guess" not in caplog.text


@sasl_scenario()
async def test_a_mechanism_that_is_not_enabled(bench: Bench, /) -> None:
    for mechanism in ("SCRAM-SHA-512", "GSSAPI", "plain", ""):
        connection = Listener(bench).connect()
        response = await connection.handshake(mechanism)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        assert connection.is_closed


@pytest.mark.parametrize(
    "requests",
    [
        [(MetadataRequest(), 9)],
        [(SaslAuthenticateRequest(auth_bytes=ALICE), 2)],
        [(ApiVersionsRequest(), 0), (ApiVersionsRequest(), 0)],
        [(ApiVersionsRequest(), 0), (MetadataRequest(), 9)],
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (MetadataRequest(), 9)],
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (ApiVersionsRequest(), 0)],
    ],
    ids=lambda requests: "-".join(type(message).__name__ for message, _ in requests),
)
@sasl_scenario()
async def test_other_requests_close_the_connection(
    bench: Bench, /, requests: list[tuple[Message, int]]
) -> None:
    connection = Listener(bench).connect()
    for message, version in requests[:-1]:
        await connection.ask(message, version)
    with pytest.raises(CloseConnection, match="API"):
        await connection.ask(*requests[-1])
    with pytest.raises(CloseConnection):
        await connection.handshake()


@sasl_scenario()
async def test_an_unknown_version_of_api_versions_may_be_repeated(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    frame = frame_request(ApiVersionsRequest(), 0, correlation_id=7, client_id="c")[4:]
    response = await connection.send(frame[:2] + (99).to_bytes(2, "big") + frame[4:])
    assert int.from_bytes(response[8:10], "big") == ErrorCode.UNSUPPORTED_VERSION
    await connection.ask(ApiVersionsRequest(), 0)
    assert (await connection.login()).error_code == ErrorCode.NONE


@sasl_scenario()
async def test_a_second_handshake_fails(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.handshake()
    response = await connection.handshake()
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.is_closed


@sasl_scenario()
async def test_sasl_after_authentication_is_rejected(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.login()
    response = await connection.handshake()
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    authenticated = await connection.authenticate(ALICE)
    assert authenticated.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "after successful authentication" in authenticated.error_message
    assert await connection.is_served()


@sasl_scenario()
async def test_frames_are_small_before_authentication(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    assert connection.handler.frame_bytes_max == FIRST_FRAME_BYTES_MAX
    await connection.handshake()
    assert connection.handler.frame_bytes_max == 17 << 10
    await connection.authenticate(ALICE)
    assert connection.handler.frame_bytes_max == bench.config.socket_request_max_bytes


@sasl_scenario(**{"sasl.server.max.receive.size": "1000"})
async def test_a_setting_limits_the_first_frame_too(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    assert connection.handler.frame_bytes_max == 1000
    await connection.handshake()
    assert connection.handler.frame_bytes_max == 1000


@sasl_scenario()
async def test_a_client_that_does_not_authenticate_in_time_is_dropped(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener(bench)
    connections = [listener.connect() for _ in range(3)]
    await connections[1].handshake()
    await connections[2].login()
    await asyncio.sleep(2.9)
    assert not any(connection.channel.aborted for connection in connections)
    await asyncio.sleep(0.2)
    assert [connection.channel.aborted for connection in connections] == [True, True, False]
    assert "not authenticated within 3000 ms" in caplog.text


@sasl_scenario(lograft_unauthenticated_connections_max="3")
async def test_the_oldest_unauthenticated_connection_is_dropped(bench: Bench, /) -> None:
    listener = Listener(bench)
    connections = [listener.connect() for _ in range(3)]
    await connections[0].login()
    connections[1].handler.on_closed()
    more = [listener.connect() for _ in range(3)]
    assert [connection.channel.aborted for connection in connections] == [False, False, True]
    assert not any(connection.channel.aborted for connection in more)
    assert (await more[2].login()).error_code == ErrorCode.NONE


def scram_record(name: str, password: str) -> UserScramCredentialRecord:
    mechanism = ScramMechanism.SCRAM_SHA_256
    salted = salt_password(mechanism, password, b"salt", 4096)
    stored = credential_of(name, mechanism, salted_password=salted, salt=b"salt", iterations=4096)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=stored.salt,
        stored_key=stored.stored_key,
        server_key=stored.server_key,
        iterations=stored.iterations,
    )


async def scram_login(connection: Connection, name: str, password: str) -> Any:
    await connection.handshake("SCRAM-SHA-256")
    bare = f"n={name},r=abc"
    response = await connection.authenticate(f"n,,{bare}".encode())
    first = response.auth_bytes.decode()
    fields = dict(part.partition("=")[::2] for part in first.split(","))
    final = f"c=biws,r={fields['r']}"
    salted = salt_password(
        ScramMechanism.SCRAM_SHA_256,
        password,
        base64.b64decode(fields["s"]),
        int(fields["i"]),
    )
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"{bare},{first},{final}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    return await connection.authenticate(f"{final},p={proof.decode()}".encode())


@sasl_scenario()
async def test_scram_uses_the_users_of_the_metadata(bench: Bench, /) -> None:
    listener = Listener(bench)
    unknown = await scram_login(listener.connect(), "carol", "pencil")
    assert unknown.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    bench.controller.append((scram_record("carol", "pencil"), scram_record("bob", "x")))
    connection = listener.connect()
    assert (await scram_login(connection, "carol", "pencil")).error_code == ErrorCode.NONE
    assert connection.principal == "User:carol"
    wrong = await scram_login(listener.connect(), "carol", "pen")
    assert (wrong.error_code, wrong.error_message) == (unknown.error_code, unknown.error_message)
    bench.controller.append((RemoveUserScramCredentialRecord(name="carol", mechanism=1),))
    removed = await scram_login(listener.connect(), "carol", "pencil")
    assert removed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await connection.is_served()


REAUTH = {"connections_max_reauth_ms": "10000"}


@sasl_scenario(**REAUTH)
async def test_an_expired_session_closes_the_connection(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    assert (await connection.login()).session_lifetime_ms == 10_000
    await asyncio.sleep(9.9)
    assert await connection.is_served()
    await asyncio.sleep(0.2)
    with pytest.raises(CloseConnection, match="expired"):
        await connection.is_served()


@sasl_scenario(**REAUTH)
async def test_a_client_authenticates_again(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.login()
    for _ in range(3):
        await asyncio.sleep(9)
        assert (await connection.login()).session_lifetime_ms == 10_000
        assert await connection.is_served()
    # Also after the session has expired, as long as no other request was sent.
    await asyncio.sleep(11)
    assert (await connection.login()).error_code == ErrorCode.NONE
    assert await connection.is_served()


@sasl_scenario(**REAUTH)
async def test_the_principal_cannot_change(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.login()
    await asyncio.sleep(5)
    response = await connection.login(f"\0bob\0{PASSWORD}".encode())
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.is_closed
    assert connection.principal == "User:alice"
    with pytest.raises(CloseConnection):
        await connection.is_served()


@sasl_scenario(**REAUTH)
async def test_the_mechanism_cannot_change(bench: Bench, /) -> None:
    bench.controller.append((scram_record("alice", "x"),))
    connection = Listener(bench).connect()
    await connection.login()
    await asyncio.sleep(5)
    assert (await connection.handshake("SCRAM-SHA-256")).error_code == ErrorCode.NONE
    response = await connection.authenticate(b"n,,n=alice,r=abc")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.is_closed


@sasl_scenario(**REAUTH)
async def test_reauthentication_with_a_wrong_password_ends_the_session(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.login()
    await asyncio.sleep(5)
    assert (await connection.login(WRONG)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(CloseConnection):
        await connection.is_served()


@sasl_scenario(**REAUTH)
async def test_requests_during_reauthentication_close_the_connection(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.login()
    await asyncio.sleep(5)
    await connection.handshake()
    with pytest.raises(CloseConnection):
        await connection.is_served()


@sasl_scenario(**REAUTH)
async def test_clients_cannot_authenticate_all_the_time(bench: Bench, /) -> None:
    connection = Listener(bench).connect()
    await connection.login()
    await asyncio.sleep(2)
    await connection.login()
    response = await connection.handshake()
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await connection.is_served()


# ── OAUTHBEARER ──────────────────────────────────────────────────────────────────────────────────

JWKS_URL = "https://issuer.example/keys"
OAUTHBEARER: dict[str, str] = {
    f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
    "sasl.oauthbearer.jwks.endpoint.url": JWKS_URL,
    "lograft.oauthbearer.allowed.urls": JWKS_URL,
    "sasl.oauthbearer.expected.issuer": identity_provider.ISSUER,
    "sasl.oauthbearer.expected.audience": identity_provider.AUDIENCE,
}


def first_message_of(token: str) -> bytes:
    return OAuthBearerClientExchange(token).start()


class TokenListener(Listener):
    """Its identity provider has one key; `is_reachable` decides whether it answers."""

    is_reachable = True

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench, read_key_set=self.read)
        self.key = identity_provider.rsa_key()
        self.reads = 0

    async def read(self, *_: object) -> bytes:
        self.reads += 1
        if not self.is_reachable:
            raise InvalidConfig("not reachable")
        return identity_provider.key_set(identity_provider.public_entry(self.key, kid="first"))

    def message(self, **claims: Any) -> bytes:
        """The first message of a client; `claims` are added to the token."""
        usual = identity_provider.claims(self.clock.wall_ms() / 1000, **claims)
        return first_message_of(identity_provider.token(usual, key=self.key))


@sasl_scenario(**OAUTHBEARER)
async def test_a_client_logs_in_with_a_token_until_it_expires(bench: Bench, /) -> None:
    listener = TokenListener(bench)
    await asyncio.sleep(0.1)
    connection = listener.connect()
    await connection.handshake("OAUTHBEARER")
    response = await connection.authenticate(listener.message())
    assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b"")
    assert 599_000 <= response.session_lifetime_ms <= 600_000
    assert connection.principal == "User:alice"
    await asyncio.sleep(500)
    await connection.handshake("OAUTHBEARER")
    renewed = await connection.authenticate(listener.message())
    assert renewed.error_code == ErrorCode.NONE
    await asyncio.sleep(500)
    assert await connection.is_served()
    await connection.handshake("OAUTHBEARER")
    other = await connection.authenticate(listener.message(sub="bob"))
    assert other.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    last = listener.connect()
    await last.handshake("OAUTHBEARER")
    assert (await last.authenticate(listener.message())).error_code == ErrorCode.NONE
    await asyncio.sleep(601)
    with pytest.raises(CloseConnection, match="expired"):
        await last.is_served()


@sasl_scenario(**OAUTHBEARER)
async def test_a_rejected_token_is_reported_and_logged_once(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    listener = TokenListener(bench)
    await asyncio.sleep(0.1)
    for acknowledges in (True, False):
        caplog.clear()
        connection = listener.connect()
        await connection.handshake("OAUTHBEARER")
        message = listener.message(aud="other", sub="c4n4ry")
        response = await connection.authenticate(message)
        assert (response.error_code, response.auth_bytes) == (0, b'{"status":"invalid_token"}')
        if acknowledges:
            failed = await connection.authenticate(b"\x01")
            assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert failed.error_message == '{"status":"invalid_token"}'
            assert connection.is_closed
        connection.handler.on_closed()
        assert "\n".join(caplog.messages).count('reason="the token is for another audience"') == 1
        assert message.decode() not in caplog.text
        assert "c4n4ry" not in caplog.text


@sasl_scenario(**OAUTHBEARER)
async def test_without_keys_no_token_is_accepted(bench: Bench, /) -> None:
    TokenListener.is_reachable = False
    try:
        listener = TokenListener(bench)
        await asyncio.sleep(1)
        connection = listener.connect()
        await connection.handshake("OAUTHBEARER")
        response = await connection.authenticate(listener.message())
        assert response.auth_bytes == b'{"status":"invalid_token"}'
    finally:
        TokenListener.is_reachable = True


@sasl_scenario(**OAUTHBEARER)
async def test_a_new_key_is_read_when_it_is_used(bench: Bench, /) -> None:
    listener = TokenListener(bench)
    await asyncio.sleep(0.1)
    listener.key = identity_provider.rsa_key(1)
    token = identity_provider.token(
        identity_provider.claims(listener.clock.wall_ms() / 1000),
        key=listener.key,
        header={"alg": "RS256", "kid": "second"},
    )
    for expected_reads in (2, 2):
        connection = listener.connect()
        await connection.handshake("OAUTHBEARER")
        await connection.authenticate(first_message_of(token))
        await asyncio.sleep(0.1)
        assert listener.reads == expected_reads
    listener.authentication.close()


@sasl_scenario(
    **{
        f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": UNSECURED_HANDLER,
        "lograft.oauthbearer.unsecured.tokens.enable": "true",
    },
)
async def test_unsecured_tokens_if_they_are_enabled(bench: Bench, /) -> None:
    listener = TokenListener(bench)
    claims = identity_provider.claims(listener.clock.wall_ms() / 1000)
    token = f"{identity_provider.part({'alg': 'none'})}.{identity_provider.part(claims)}."
    for text, principal in ((token, "User:alice"), (f"{token}AA", ANONYMOUS)):
        connection = listener.connect()
        await connection.handshake("OAUTHBEARER")
        await connection.authenticate(first_message_of(text))
        assert connection.principal == principal


# ── Kerberos ─────────────────────────────────────────────────────────────────────────────────────

KERBEROS = {
    f"{PREFIX}sasl.enabled.mechanisms": "GSSAPI",
    f"{PREFIX}gssapi.sasl.jaas.config": f"{KERBEROS_MODULE} required"
    ' keyTab="node.keytab" principal="kafka/host@REALM";',
}


class FakeKey:
    """A `ServerKey` whose contexts are established by one token: the name of the client."""

    default_realm = "REALM"

    def accept(self) -> "FakeContext":
        return FakeContext()


class FakeContext:
    def __init__(self) -> None:
        self.peer = ""

    @property
    def is_established(self) -> bool:
        return bool(self.peer)

    def step(self, token: bytes) -> bytes:
        if b"@" not in token:
            raise ContextFailed("Invalid token was supplied")
        self.peer = token.decode()
        return b""

    def wrap(self, message: bytes) -> bytes:
        return message

    def unwrap(self, message: bytes) -> bytes:
        return message


@sasl_scenario(**KERBEROS)
async def test_a_client_logs_in_with_kerberos(bench: Bench, /) -> None:
    loaded = []

    def load(principal: str, keytab_path: str) -> FakeKey:
        loaded.append((principal, keytab_path))
        return FakeKey()

    listener = Listener(bench, load_server_key=load)
    await listener.authentication.load_keys()
    for _ in range(2):
        connection = listener.connect()
        await connection.handshake("GSSAPI")
        offer = await connection.authenticate(b"alice@REALM")
        assert offer.auth_bytes == b"\1\0\0\0"
        response = await connection.authenticate(b"\1\0\0\0")
        assert response.error_code == ErrorCode.NONE
        assert connection.principal == "User:alice"
    assert loaded == [("kafka/host@REALM", "node.keytab")]


@sasl_scenario(**KERBEROS)
async def test_a_key_that_cannot_be_loaded_ends_the_start_and_rejects_logins(
    bench: Bench, /
) -> None:
    def load(principal: str, keytab_path: str) -> FakeKey:
        raise InvalidConfig("Kerberos cannot use the key")

    listener = Listener(bench, load_server_key=load)
    with pytest.raises(InvalidConfig, match="cannot use the key"):
        await listener.authentication.load_keys()
    connection = listener.connect()
    await connection.handshake("GSSAPI")
    response = await connection.authenticate(b"alice@REALM")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
