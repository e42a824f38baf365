"""A node with SASL listeners, of either kind, and how each client logs in to it."""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import aiokafka
import kafka
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from lograft.client.blocking import Producer as LograftProducer
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from tests.compatibility.servers import HOST, Kind, Server, free_port
from tests.unit.net.certificates import Authority

#: In every log and answer: none of them may contain it.
CANARY: Final = "c4n4ry"
PASSWORDS: Final = {"alice": f"{CANARY}-alice", "bob, =": f"{CANARY}-bob"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
TIMEOUT_SECONDS: Final = 10.0
TOPIC: Final = "logins"


def upsertion(name: str, password: str, iterations: int = 4096, mechanism: Any = SHA_256) -> Any:
    info = ScramCredentialInfo(mechanism, iterations)
    return UserScramCredentialUpsertion(name, info, password.encode())


def deletion(name: str, mechanism: Any = SHA_256) -> Any:
    return UserScramCredentialDeletion(name, mechanism)


class SaslServer:
    """Users are alice (PLAIN) and those of `add_user` (SCRAM). SASL is a listener without TLS, TLS
    one with it; users are managed over a third, without security."""

    def __init__(self, kind: Kind, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.server = Server.of(kind, folder / "node")
        self.ports = {"SASL": free_port(), "TLS": free_port()}
        authority = Authority()
        self.trust_path = folder / "trust.pem"
        self.trust_path.write_text(authority.pem)
        key_path = folder / "node.pem"
        key_path.write_text(authority.issue().pem())
        addresses = {"PLAINTEXT": self.server.port, **self.ports}
        advertised = ",".join(f"{name}://{HOST}:{port}" for name, port in addresses.items())
        users = " ".join(f'user_{name}="{PASSWORDS[name]}"' for name in ("alice",))
        self.server.settings |= {
            "listeners": f"{advertised},CONTROLLER://{self.server.controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ",SASL:SASL_PLAINTEXT,TLS:SASL_SSL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(key_path),
            **(settings or {}),
        }
        for listener in ("sasl", "tls"):
            for mechanism in MECHANISMS:
                module = f"{PLAIN_MODULE} required {users};"
                if mechanism != "PLAIN":
                    module = f"{SCRAM_MODULE} required;"
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                self.server.settings[name] = module

    def address(self, listener: str = "SASL") -> str:
        return f"{HOST}:{self.ports[listener]}"

    def add_user(self, name: str, password: str, iterations: int = 4096) -> None:
        for mechanism in (SHA_256, SHA_512):
            self.alter_users(upsertion(name, password, iterations, mechanism))

    def alter_users(self, *changes: Any) -> None:
        """Raises KafkaException."""
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        for future in admin.alter_user_scram_credentials(list(changes)).values():
            future.result()

    def users(self) -> dict[str, dict[Any, int]]:
        """Mechanisms and iterations of all users."""
        admin: Any = AdminClient({"bootstrap.servers": self.server.bootstrap})
        described = admin.describe_user_scram_credentials().result()
        return {
            name: {info.mechanism: info.iterations for info in user.scram_credential_infos}
            for name, user in described.items()
        }

    def connect(self, listener: str = "SASL") -> "closing[socket.socket]":
        return closing(
            socket.create_connection((HOST, self.ports[listener]), timeout=TIMEOUT_SECONDS)
        )


class LoginFailed(Exception):
    """The client said that its credentials were rejected."""


def librdkafka(server: SaslServer, listener: str, mechanism: str, user: str, password: str) -> None:
    errors: list[Any] = []
    outcomes: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": server.address(listener),
            "security.protocol": "SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
            "ssl.ca.location": str(server.trust_path),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": errors.append,
            "logger": _Silent(),
        }
    )
    producer.produce(TOPIC, b"x", callback=lambda error, message: outcomes.append(error))
    for _ in range(100):
        producer.flush(TIMEOUT_SECONDS / 100)
        if outcomes or any("authentication" in error.str().lower() for error in errors):
            break
    if outcomes != [None]:
        producer.purge()
        producer.flush(1)
        raise LoginFailed(str([error.str() for error in errors]))


def python(server: SaslServer, listener: str, mechanism: str, user: str, password: str) -> None:
    try:
        producer = kafka.KafkaProducer(
            bootstrap_servers=server.address(listener),
            security_protocol="SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
            ssl_cafile=str(server.trust_path),
            ssl_check_hostname=False,
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
    except kafka.errors.KafkaError as error:
        raise LoginFailed(str(error)) from None
    with closing(producer):
        producer.send(TOPIC, b"x").get(TIMEOUT_SECONDS)


def asyncio_client(
    server: SaslServer, listener: str, mechanism: str, user: str, password: str
) -> None:
    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.address(listener),
            security_protocol="SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
            ssl_context=ssl.create_default_context(cafile=str(server.trust_path)),
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"x")
        except aiokafka.errors.KafkaError as error:
            raise LoginFailed(str(error)) from None
        finally:
            await producer.stop()

    asyncio.run(produce())


def lograft(server: SaslServer, listener: str, mechanism: str, user: str, password: str) -> None:
    from lograft.client import AuthenticationFailed

    settings = {
        "bootstrap.servers": server.address(listener),
        "security.protocol": "SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
        "ssl.truststore.location": str(server.trust_path),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    try:
        with LograftProducer(settings) as producer:
            producer.send(TOPIC, b"x")
    except AuthenticationFailed as error:
        raise LoginFailed(str(error)) from None


class _Silent:
    """librdkafka logs each failed attempt."""

    def log(self, *arguments: object) -> None: ...


CLIENTS: Final = {
    "librdkafka": librdkafka,
    "kafka-python": python,
    "aiokafka": asyncio_client,
    "lograft": lograft,
}


def started(server: SaslServer) -> Iterator[SaslServer]:
    with server.server.started():
        for name, password in PASSWORDS.items():
            server.add_user(name, password)
        yield server
