"""Clients log in with Kerberos: the same on Lograft and on Apache Kafka, with a real key
distribution center."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lograft.client import NewTopic
from lograft.client.blocking import Admin
from tests.compatibility.kerberos import SERVER, Realm, ensure_gssapi, started_realm
from tests.compatibility.servers import (
    SMALL_JVM,
    Kind,
    Server,
    free_port,
    java_command,
    kinds_under_test,
)
from tests.compatibility.test_node_logins import FEATURES, wait_for

pytestmark = pytest.mark.interop
#: As in the principal of the node.
HOST = "localhost"
TOPIC = "logins"
SECONDS_MAX = 60
KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer
from kafka.errors import KafkaError
try:
    producer = KafkaProducer(
        bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka", bootstrap_timeout_ms=10_000,
    )
    print(producer.send("logins", b"x").get(20).topic)
    producer.close()
except KafkaError as error:
    sys.exit(repr(error))
"""
LOGRAFT = """
import sys
from lograft.client.blocking import Producer
with Producer(
    bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
    sasl_kerberos_service_name="kafka", sasl_jaas_config=sys.argv[2] or None,
) as producer:
    print(producer.send("logins", b"x").topic)
"""
AIOKAFKA = """
import asyncio, sys
from aiokafka import AIOKafkaProducer
async def main():
    producer = AIOKafkaProducer(
        bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    )
    try:
        await producer.start()
        print((await producer.send_and_wait("logins", b"x")).topic)
    finally:
        await producer.stop()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    ensure_gssapi()
    with (
        started_realm(tmp_path_factory.mktemp("kerberos") / "realm") as realm,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        yield realm


class KerberosServer:
    """A node whose listener SASL has GSSAPI, and one without security for the test itself."""

    def __init__(self, kind: Kind, folder: Path, realm: Realm) -> None:
        self.realm = realm
        self.server = Server.of(kind, folder / "node")
        self.server.jvm = (*SMALL_JVM, f"-Djava.security.krb5.conf={realm.config_path}")
        self.port = free_port()
        listeners = f"PLAINTEXT://{self.server.bootstrap},SASL://{HOST}:{self.port}"
        self.server.settings |= {
            "listeners": f"{listeners},CONTROLLER://{self.server.controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ",SASL:SASL_PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.sasl.gssapi.sasl.jaas.config": realm.jaas(SERVER, is_server=True),
            # Kafka reads the service name of a listener from here.
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1@$0](mallory@.*)s/.*/x@y/,DEFAULT",
        }

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def log_in_with_java(self, principal: str, folder: Path) -> str:
        """Returns what kafka-topics printed."""
        config = folder / f"{principal}.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
            f"sasl.jaas.config={self.realm.jaas(principal)}\n"
            "default.api.timeout.ms=20000\nrequest.timeout.ms=10000\n"
        )
        java = java_command((*SMALL_JVM, f"-Djava.security.krb5.conf={self.realm.config_path}"))
        tool = ["org.apache.kafka.tools.TopicCommand", "--list"]
        done = run([*java, *tool, "--bootstrap-server", self.address, "--command-config", config])
        return done.stdout + done.stderr

    def log_in_with_python(self, program: str, principal: str, jaas: str = "") -> str:
        keytab = self.realm.keytab(principal)
        self.realm.run("kinit", "-k", "-t", str(keytab), principal)
        done = run([sys.executable, "-W", "ignore", "-c", program, self.address, jaas])
        return done.stdout + done.stderr


def run(command: list[str | Path]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, env=os.environ
    )


@pytest.fixture(params=kinds_under_test(), scope="module")
def kerberos(
    request: pytest.FixtureRequest, realm: Realm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KerberosServer]:
    server = KerberosServer(request.param, tmp_path_factory.mktemp("server"), realm)
    with server.server.started():
        yield server


@pytest.mark.parametrize(
    "program", [KAFKA_PYTHON, AIOKAFKA, LOGRAFT], ids=["kafka-python", "aiokafka", "lograft"]
)
def test_python_clients_log_in(kerberos: KerberosServer, program: str) -> None:
    assert kerberos.log_in_with_python(program, "alice").splitlines()[-1] == TOPIC


def test_javas_client_logs_in(kerberos: KerberosServer, tmp_path: Path) -> None:
    kerberos.log_in_with_python(KAFKA_PYTHON, "alice")
    assert TOPIC in kerberos.log_in_with_java("alice", tmp_path).splitlines()


def test_a_principal_that_no_rule_shortens_is_rejected(
    kerberos: KerberosServer, tmp_path: Path
) -> None:
    output = kerberos.log_in_with_java("mallory", tmp_path)
    # Kafka closes the connection without a response.
    assert ("Authentication failed" if kerberos.server.kind == "lograft" else "Timed out") in output


def test_our_client_logs_in_with_a_keytab(kerberos: KerberosServer) -> None:
    jaas = kerberos.realm.jaas("bob")
    assert kerberos.log_in_with_python(LOGRAFT, "alice", jaas).splitlines()[-1] == TOPIC


def test_our_client_reports_a_key_that_is_no_longer_valid(kerberos: KerberosServer) -> None:
    jaas = kerberos.realm.jaas("carol")
    kerberos.realm.remove("carol")
    output = kerberos.log_in_with_python(LOGRAFT, "alice", jaas)
    assert "AuthenticationFailed" in output.splitlines()[-1]
    assert "not found in Kerberos database" in output


def secure_between_nodes(server: Server, realm: Realm, role: str) -> None:
    """Nodes log in at each other; clients of the test use a listener without security."""
    listeners = f"PLAINTEXT://{server.bootstrap},INSIDE://{HOST}:{free_port()}"
    if role == "controller":
        listeners = f"CONTROLLER://{HOST}:{server.controller_port}"
    jaas = realm.jaas(SERVER, is_server=True)
    server.jvm = (*SMALL_JVM, f"-Djava.security.krb5.conf={realm.config_path}")
    server.settings |= {
        "process.roles": role,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT"
        ",CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.controller.gssapi.sasl.jaas.config": jaas,
        "listener.name.inside.gssapi.sasl.jaas.config": jaas,
        "sasl.kerberos.service.name": "kafka",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    } | ({"inter.broker.listener.name": "INSIDE"} if role == "broker" else {})


def test_nodes_log_in_at_each_other(
    realm: Realm, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    """A Lograft node and, if Kafka takes part in the run, one of Kafka."""
    controllers = [new_server("lograft") for _ in range(2)]
    voters = ",".join(
        f"{node_id}@{HOST}:{server.controller_port}"
        for node_id, server in enumerate(controllers, start=1)
    )
    brokers = [new_server(kind) for kind in ("lograft", kinds_under_test()[-1])]
    nodes = [*controllers, *brokers]
    for node_id, server in enumerate(nodes, start=1):
        server.node_id = node_id
        secure_between_nodes(server, realm, "controller" if node_id <= 2 else "broker")
        server.voters = voters
        server.format_arguments = FEATURES
    try:
        for server in nodes:
            server.launch()
        servers = ",".join(broker.bootstrap for broker in brokers)
        with Admin(bootstrap_servers=servers) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, *nodes)
            admin.create_topics([NewTopic(TOPIC, partitions=2, replicas=2)])

            def all_in_sync() -> bool:
                topic = admin.describe_topics([TOPIC])[TOPIC]
                return all(len(partition.isr) == 2 for partition in topic.partitions)

            wait_for(all_in_sync, *nodes)
    finally:
        for server in nodes:
            server.kill()
