"""`lograft start --secure`, from an empty directory to users with ACLs, with real clients."""

import base64
import json
import shlex
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from lograft.client import AuthenticationFailed
from lograft.client.blocking import Admin
from lograft.client.blocking import Producer as LograftProducer
from lograft.model.properties import parse_properties
from tests.compatibility.command_line import done
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import outcome
from tests.compatibility.sasl_servers import SHA_512, upsertion
from tests.compatibility.secure_nodes import SecureNode

clients = pytest.mark.clients
SECRET_FILES = {
    "admin.password",
    "ca.key",
    "client.properties",
    "librdkafka.properties",
    "node.json",
    "node.pem",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("secure") / "node").started(
        "--host", "localhost"
    ) as node:
        yield node


@pytest.fixture
def admin(node: SecureNode) -> AdminClient:
    return AdminClient(node.librdkafka_settings())


def settings_of(node: SecureNode) -> dict[str, Any]:
    return dict(parse_properties(node.client_file.read_text()))


def as_user(node: SecureNode, user: str, password: str) -> dict[str, Any]:
    return node.librdkafka_settings() | {"sasl.username": user, "sasl.password": password}


def add_user(admin: AdminClient, user: str) -> None:
    change = upsertion(user, f"{user}-secret", mechanism=SHA_512)
    outcome(admin.alter_user_scram_credentials([change]))


@clients
def test_the_files_are_for_their_owner_only(node: SecureNode) -> None:
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in node.folder.iterdir()
        if path.is_file()
    }
    assert modes == dict.fromkeys(SECRET_FILES, 0o600) | {"ca.pem": 0o644}
    assert stat.S_IMODE(node.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((node.folder / "log").stat().st_mode) & 0o022 == 0


@clients
def test_the_printed_commands_work(
    node: SecureNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGRAFT_CONFIG_DIR", str(tmp_path))
    (line,) = (line for line in node.output.splitlines() if line.startswith("lograft: "))
    program, *arguments = shlex.split(line.removeprefix("lograft: "))
    assert program == "lograft"
    done(*arguments)
    done("topics", "create", "printed")
    done("produce", "printed", text="hello\n")
    assert "hello" in done("consume", "printed", "-n", "1").out
    assert "!!" not in done("doctor").out


@clients
def test_clients_log_in_as_admin(node: SecureNode, admin: AdminClient) -> None:
    with LograftProducer(settings_of(node)) as producer:
        outcome(admin.create_topics([NewTopic("both", 1, 1)]))
        assert producer.send("both", b"x").offset == 0


@clients
def test_other_users_need_acls(node: SecureNode, admin: AdminClient) -> None:
    add_user(admin, "alice")
    outcome(admin.create_topics([NewTopic("orders", 1, 1), NewTopic("secrets", 1, 1)]))
    alice = settings_of(node) | {"sasl.username": "alice", "sasl.password": "alice-secret"}
    del alice["sasl.jaas.config"]
    with Admin(alice) as client:
        assert client.describe_topics() == {}
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    outcome(admin.create_acls([binding]))
    with Admin(alice) as client:
        assert list(client.describe_topics()) == ["orders"]
    errors: list[Any] = []
    producer = Producer(as_user(node, "alice", "alice-secret"))
    for topic in ("orders", "secrets"):
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error and error.name() for error in sorted(errors, key=bool)] == [
        None,
        "TOPIC_AUTHORIZATION_FAILED",
    ]


@clients
def test_metrics_need_a_login(node: SecureNode, admin: AdminClient) -> None:
    (line,) = (line for line in node.output.splitlines() if line.startswith("Metrics "))
    url = line.partition(": ")[2].partition("/metrics")[0]
    assert url.startswith("https://localhost:")
    context = ssl.create_default_context(cafile=node.folder / "ca.pem")

    def get(path: str, user: str = "", password: str = "") -> tuple[int, str]:
        request = Request(url + path)
        if user:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {login}")
        try:
            with urlopen(request, context=context, timeout=30) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    add_user(admin, "dora")
    assert "lograft_requests_total" in get("/metrics", "admin", node.password)[1]
    assert get("/health/live") == (200, '{"status":"live"}')
    assert get("/health/ready") == (200, '{"status":"ready"}')
    assert get("/health/ready", "admin", node.password)[1] == '{"status":"ready","reasons":[]}'
    assert get("/v1/history")[0] == 401
    assert get("/metrics", "admin", "wrong")[0] == 401
    assert get("/metrics", "dora", "dora-secret")[0] == 403
    to = ("--command-config", str(node.client_file), "--http", url)
    figures = json.loads(done("top", "--json", *to).out)
    assert figures["missing"] == {}
    assert len(figures["nodes"]) == 1


@clients
def test_no_client_gets_in_without_the_password(node: SecureNode) -> None:
    ours = settings_of(node)
    del ours["sasl.jaas.config"]
    wrong = ours | {"sasl.username": "admin", "sasl.password": "wrong"}
    with pytest.raises(AuthenticationFailed), Admin(wrong) as client:
        client.describe_cluster()
    settings = as_user(node, "node", "guess") | {"logger": _Silent()}
    stranger = AdminClient(settings)
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=2)


@clients
def test_a_restart_keeps_everything_and_prints_no_secrets(tmp_path: Path) -> None:
    node = SecureNode(tmp_path / "node")
    with node.started("--host", "127.0.0.1"):
        add_user(AdminClient(node.librdkafka_settings()), "bob")
        kept = {name: (node.folder / name).read_bytes() for name in (*SECRET_FILES, "ca.pem")}
        password = node.password
    assert password not in node.output + node.log
    with node.started():
        assert node.address.startswith("127.0.0.1:")
        AdminClient(as_user(node, "bob", "bob-secret")).list_topics(timeout=30)
        after = {name: (node.folder / name).read_bytes() for name in kept}
    changed = {name for name, content in kept.items() if after[name] != content}
    assert changed <= {"client.properties", "librdkafka.properties"}, "the port is a new one"
    assert "Formatted" not in node.output
    assert password not in node.output + node.log
    own_password = kept["node.json"].split(b'"password": "')[1].split(b'"')[0].decode()
    assert own_password not in node.output + node.log


@pytest.mark.interop
def test_tools_of_kafka_manage_users_and_acls(
    node: SecureNode, java_tools: JavaTools, tmp_path: Path
) -> None:
    tools = java_tools
    to = ("--bootstrap-server", node.address, "--command-config", str(node.client_file))
    tools.check("TopicCommand", *to, "--create", "--topic", "payments")
    tools.check(
        "ConfigCommand",
        *(*to, "--alter", "--entity-type", "users", "--entity-name", "carol"),
        *("--add-config", "SCRAM-SHA-512=[iterations=8192,password=carol-secret]"),
    )
    carol_file = tmp_path / "carol.properties"
    text = node.client_file.read_text()
    carol_file.write_text(text.replace('"admin"', '"carol"').replace(node.password, "carol-secret"))
    carol = ("--bootstrap-server", node.address, "--command-config", str(carol_file))
    assert "payments" not in tools.check("TopicCommand", *carol, "--list").text
    tools.check(
        "AclCommand",
        *(*to, "--add", "--allow-principal", "User:carol", "--producer", "--topic", "payments"),
    )
    assert "payments" in tools.check("TopicCommand", *carol, "--list").lines
    assert tools.run("TopicCommand", *carol, "--create", "--topic", "other").code != 0


class _Silent:
    """librdkafka logs each failed attempt."""

    def log(self, *arguments: object) -> None: ...
