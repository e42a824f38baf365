"""Delegation tokens with Kafka's tools and clients: the same on Lograft and on Apache Kafka."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from lograft.client import AuthenticationFailed
from lograft.client.blocking import Producer
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.security.delegation_tokens import token_hmac, token_password
from tests.compatibility.foreign_programs import go_scenario, run_json
from tests.compatibility.java_tools import JavaTools, ToolRun
from tests.compatibility.servers import (
    HOST,
    Kind,
    Server,
    free_port,
    kinds_under_test,
)

pytestmark = [pytest.mark.clients, pytest.mark.interop]

KEY: Final = "a key of tests"
USERS: Final = ("alice", "bob")
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ROW: Final = re.compile(r"^([\w-]{22})\s+([A-Za-z0-9+/=]{88})\s+(.*)$", re.MULTILINE)


class TokenServer:
    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.server = Server.of(kind, folder / "node")
        self.port = free_port()
        advertised = f"PLAINTEXT://{self.server.bootstrap},SASL://{HOST}:{self.port}"
        users = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
        self.server.settings |= {
            "listeners": f"{advertised},CONTROLLER://{self.server.controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ",SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
            "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
            "delegation.token.secret.key": KEY,
        }
        for mechanism in MECHANISMS:
            name = f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config"
            self.server.settings[name] = f"{SCRAM_MODULE} required;"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def login_file(self, user: str) -> str:
        return self._properties(
            user, "PLAIN", f'{PLAIN_MODULE} required username="{user}" password="{user}-secret";'
        )

    def token_file(self, token_id: str, password: str, mechanism: str) -> str:
        return self._properties("token", mechanism, token_jaas(token_id, password))

    def _properties(self, name: str, mechanism: str, jaas: str) -> str:
        path = self.folder / f"{name}-{mechanism}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={jaas}\nrequest.timeout.ms=10000\ndefault.api.timeout.ms=10000\n"
        )
        return str(path)


def token_jaas(token_id: str, password: str) -> str:
    return f'{SCRAM_MODULE} required username="{token_id}" password="{password}" tokenauth="true";'


@pytest.fixture(params=kinds_under_test(), scope="module")
def tokens(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TokenServer]:
    server = TokenServer(request.param, tmp_path_factory.mktemp("tokens"))
    with server.server.started():
        yield server


def ask(tokens: TokenServer, tools: JavaTools, login: str, *arguments: str) -> ToolRun:
    address = ("--bootstrap-server", tokens.address, "--command-config", login)
    return tools.run("DelegationTokenCommand", *address, *arguments)


def create(tokens: TokenServer, tools: JavaTools, user: str, *arguments: str) -> tuple[str, str]:
    """Returns id and HMAC."""
    done = ask(
        tokens,
        tools,
        tokens.login_file(user),
        "--create",
        "--max-life-time-period",
        "-1",
        *arguments,
    )
    assert done.code == 0, done.text
    found = _ROW.search(done.text)
    assert found is not None, done.text
    return found[1], found[2]


def run_alone(
    tokens: TokenServer, tools: JavaTools, tool: str, login: str, *arguments: str
) -> ToolRun:
    """In a JVM of its own: only the first login with a token in a JVM says that it is one."""
    address = ("--bootstrap-server", tokens.address, "--command-config", login)
    return tools.run_alone(tool, *address, *arguments)


def test_the_life_of_a_token(tokens: TokenServer, java_tools: JavaTools) -> None:
    token_id, secret = create(tokens, java_tools, "alice", "--renewer-principal", "User:bob")
    assert secret == token_password(token_hmac(KEY.encode(), token_id))
    bob = tokens.login_file("bob")
    described = ask(tokens, java_tools, bob, "--describe", "--owner-principal", "User:alice")
    assert described.code == 0, described.text
    row = next(found for found in _ROW.finditer(described.text) if found[1] == token_id)
    assert row[2] == secret
    assert row[3].split()[:3] == ["User:alice", "User:alice", "[User:bob]"]
    renewal = ("--renew", "--renew-time-period", "-1", "--hmac", secret)
    renewed = ask(tokens, java_tools, bob, *renewal)
    assert renewed.code == 0, renewed.text
    assert "Completed renew operation" in renewed.text
    for mechanism in MECHANISMS:
        login = tokens.token_file(token_id, secret, mechanism)
        done = run_alone(tokens, java_tools, "TopicCommand", login, "--list")
        assert done.code == 0, done.text
        lograft_client(tokens, mechanism, token_id, secret)
        franz_go(tokens, mechanism, token_id, secret)
    login = tokens.token_file(token_id, secret, MECHANISMS[0])
    for request in (("--create", "--max-life-time-period", "-1"), renewal):
        done = run_alone(tokens, java_tools, "DelegationTokenCommand", login, *request)
        assert done.code == 1
        assert "Delegation Token requests are not allowed" in done.text
    expired = ask(
        tokens, java_tools, bob, "--expire", "--expiry-time-period", "-1", "--hmac", secret
    )
    assert expired.code == 0, expired.text
    done = run_alone(tokens, java_tools, "TopicCommand", login, "--list")
    assert done.code == 1
    assert "SaslAuthenticationException" in done.text
    with pytest.raises(AuthenticationFailed):
        lograft_client(tokens, MECHANISMS[0], token_id, secret)


def lograft_client(tokens: TokenServer, mechanism: str, token_id: str, secret: str) -> None:
    settings = {
        "bootstrap.servers": tokens.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": token_jaas(token_id, secret),
    }
    with Producer(settings) as producer:
        producer.send("logins", b"x")


def franz_go(tokens: TokenServer, mechanism: str, token_id: str, secret: str) -> None:
    command = [str(go_scenario()), "login", tokens.address, "logins", mechanism, token_id, secret]
    assert run_json(command) == {"produced": 1}


@pytest.mark.parametrize(
    ("user", "arguments", "error"),
    [
        ("bob", ("--renew", "--renew-time-period", "-1"), "TokenOwnerMismatch"),
        ("bob", ("--expire", "--expiry-time-period", "-1"), "TokenOwnerMismatch"),
        ("alice", ("--renew", "--renew-time-period", "-1", "wrong"), "TokenNotFound"),
        ("alice", ("--expire", "--expiry-time-period", "-1", "wrong"), "TokenNotFound"),
    ],
)
def test_changes_that_are_rejected(
    tokens: TokenServer,
    java_tools: JavaTools,
    user: str,
    arguments: tuple[str, ...],
    error: str,
) -> None:
    _, secret = create(tokens, java_tools, "alice")
    if arguments[-1] == "wrong":
        arguments, secret = arguments[:-1], "c2VjcmV0"
    done = ask(tokens, java_tools, tokens.login_file(user), *arguments, "--hmac", secret)
    assert done.code == 1
    assert error in done.text


def test_a_token_for_another_user(tokens: TokenServer, java_tools: JavaTools) -> None:
    """Without an authorizer, everyone may create it."""
    token_id, secret = create(tokens, java_tools, "bob", "--owner-principal", "User:alice")
    owner = ("--owner-principal", "User:alice")
    described = ask(tokens, java_tools, tokens.login_file("alice"), "--describe", *owner)
    row = next(found for found in _ROW.finditer(described.text) if found[1] == token_id)
    assert row[3].split()[:2] == ["User:alice", "User:bob"]
    lograft_client(tokens, MECHANISMS[1], token_id, secret)


@pytest.mark.parametrize("reader", ["lograft", "kafka"])
def test_tokens_of_the_other_server(reader: Kind, java_tools: JavaTools, tmp_path: Path) -> None:
    """A data folder with a token moves to the other server, where clients log in with it."""
    if set(kinds_under_test()) != {"lograft", "kafka"}:
        pytest.skip("needs both servers")
    writer: Kind = "kafka" if reader == "lograft" else "lograft"
    first = TokenServer(writer, tmp_path / "first")
    first.folder.mkdir()
    with first.server.started():
        token_id, secret = create(first, java_tools, "alice", "--renewer-principal", "User:bob")
    second = TokenServer(reader, tmp_path / "second")
    second.folder.mkdir()
    second.server.using_data_of(first.server)
    second.server.settings["listeners"] = second.server.settings["listeners"].rpartition(",")[0]
    second.server.settings["listeners"] += f",CONTROLLER://{second.server.controller}"
    with second.server.started():
        for mechanism in MECHANISMS:
            lograft_client(second, mechanism, token_id, secret)
        done = ask(
            second,
            java_tools,
            second.login_file("bob"),
            "--renew",
            "--renew-time-period",
            "-1",
            "--hmac",
            secret,
        )
        assert done.code == 0, done.text
