"""Clients log in with tokens of an identity provider: the same on Lograft and on Apache Kafka."""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import aiokafka
import kafka
import pytest
from confluent_kafka import Producer
from kafka.net.sasl.oauth import AbstractTokenProvider

from lograft.client import AuthenticationFailed
from lograft.client.blocking import Producer as LograftProducer
from lograft.model.settings.jaas import OAUTHBEARER_MODULE
from lograft.model.settings.oauthbearer import VALIDATING_HANDLERS
from tests.compatibility.foreign_programs import go_scenario, js_scripts, run_json
from tests.compatibility.sasl_servers import TIMEOUT_SECONDS, TOPIC, LoginFailed
from tests.compatibility.servers import (
    HOST,
    SMALL_JVM,
    Kind,
    Server,
    free_port,
    java_command,
    kinds_under_test,
)
from tests.support.identity_provider import (
    AUDIENCE,
    ISSUER,
    claims,
    curve_key,
    key_set,
    part,
    public_entry,
    rsa_key,
    token,
)

pytestmark = pytest.mark.clients

ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class Provider:
    """Serves its keys over HTTP."""

    def __init__(self) -> None:
        keys = key_set(
            public_entry(rsa_key(), kid="first", alg="RS256", use="sig"),
            public_entry(curve_key("P-256"), kid="curve", alg="ES256", use="sig"),
        )

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(keys)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(json.dumps({"access_token": token(fresh())}).encode())

            def answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None: ...

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://{HOST}:{self._server.server_address[1]}/keys"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class OAuthServer:
    def __init__(self, kind: Kind, folder: Path, provider: Provider) -> None:
        self.kind = kind
        self.server = Server.of(kind, folder / "node")
        self.provider = provider
        self.port = free_port()
        advertised = f"PLAINTEXT://{self.server.bootstrap},SASL://{HOST}:{self.port}"
        prefix = "listener.name.sasl.oauthbearer."
        self.server.jvm = (*SMALL_JVM, f"-D{ALLOWED_URLS}={provider.url}")
        self.server.settings |= {
            "listeners": f"{advertised},CONTROLLER://{self.server.controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ",SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
            f"{prefix}sasl.server.callback.handler.class": VALIDATING_HANDLERS[0],
            "sasl.oauthbearer.jwks.endpoint.url": provider.url,
            "lograft.oauthbearer.allowed.urls": provider.url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@pytest.fixture(params=kinds_under_test(), scope="module")
def oauth(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OAuthServer]:
    provider = Provider()
    try:
        server = OAuthServer(request.param, tmp_path_factory.mktemp("oauth"), provider)
        with server.server.started():
            yield server
    finally:
        provider.stop()


def fresh(**others: Any) -> Any:
    return claims(int(time.time()), **others)


def librdkafka(server: OAuthServer, text: str) -> None:
    errors: list[Any] = []
    outcomes: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (text, time.time() + 300),
            "error_cb": errors.append,
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


def python(server: OAuthServer, text: str) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return text

    try:
        producer = kafka.KafkaProducer(
            bootstrap_servers=server.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
    except kafka.errors.KafkaError as error:
        raise LoginFailed(str(error)) from None
    with closing(producer):
        producer.send(TOPIC, b"x").get(TIMEOUT_SECONDS)


def asyncio_client(server: OAuthServer, text: str) -> None:
    class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return text

    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"x")
        except aiokafka.errors.KafkaError as error:
            raise LoginFailed(str(error)) from None
        finally:
            await producer.stop()

    asyncio.run(produce())


def lograft(server: OAuthServer, text: str) -> None:
    async def oauth_token() -> str:
        return text

    settings = {
        "bootstrap.servers": server.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    try:
        with LograftProducer(settings, oauth_token=oauth_token) as producer:
            producer.send(TOPIC, b"x")
    except AuthenticationFailed as error:
        raise LoginFailed(str(error)) from None


CLIENTS: Final = {
    "librdkafka": librdkafka,
    "kafka-python": python,
    "aiokafka": asyncio_client,
    "lograft": lograft,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_log_in(oauth: OAuthServer, client: str) -> None:
    CLIENTS[client](oauth, token(fresh()))


@pytest.mark.parametrize("client", ["librdkafka", "lograft"])
def test_clients_with_a_rejected_token_are_told(oauth: OAuthServer, client: str) -> None:
    with pytest.raises(LoginFailed, match=r"[Aa]uthentication.*invalid_token"):
        CLIENTS[client](oauth, token(fresh(aud="billing")))


def test_a_token_with_an_elliptic_curve(oauth: OAuthServer) -> None:
    header = {"alg": "ES256", "kid": "curve"}
    lograft(oauth, token(fresh(), key=curve_key("P-256"), algorithm="ES256", header=header))


def test_lograft_requests_a_token_from_the_provider(oauth: OAuthServer) -> None:
    settings = {
        "bootstrap.servers": oauth.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": oauth.provider.url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
    }
    with LograftProducer(settings) as producer:
        producer.send(TOPIC, b"x")


def rejected_tokens() -> Mapping[str, str]:
    now_s = int(time.time())
    unsigned = part({"alg": "none"})
    return {
        "no signature": f"{unsigned}.{part(fresh())}.",
        "another issuer": token(fresh(iss="https://evil.example")),
        "no issuer": token(fresh(iss=None)),
        "no audience": token(fresh(aud=None)),
        "expired": token(claims(now_s - 3600)),
        "no exp": token(fresh(exp=None)),
        "not valid yet": token(fresh(nbf=now_s + 300)),
        "no subject": token(fresh(sub=None)),
        "unknown kid": token(fresh(), header={"alg": "RS256", "kid": "second"}),
        "another key": token(fresh(), key=rsa_key(1)),
        "another algorithm": token(
            fresh(), algorithm="RS512", header={"alg": "RS512", "kid": "first"}
        ),
        "key of another type": token(fresh(), header={"alg": "RS256", "kid": "curve"}),
        "duplicate claim": token(b'{"sub":"eve",' + f"{fresh()}".replace("'", '"').encode()[1:]),
        "two parts": token(fresh()).rpartition(".")[0],
    }


@pytest.mark.parametrize("name", rejected_tokens())
def test_tokens_that_are_rejected(oauth: OAuthServer, name: str) -> None:
    if oauth.kind == "kafka" and name in ACCEPTED_BY_KAFKA:
        pytest.skip(ACCEPTED_BY_KAFKA[name])
    with pytest.raises(LoginFailed):
        lograft(oauth, rejected_tokens()[name])


#: Kafka is less strict.
ACCEPTED_BY_KAFKA: Final[Mapping[str, str]] = {
    "another algorithm": "Kafka does not compare it with that of the key",
}


def test_no_token_is_logged(oauth: OAuthServer) -> None:
    """Kafka logs tokens whose signature is wrong."""
    text = token(fresh(sub="c4n4ry"))
    lograft(oauth, text)
    with pytest.raises(LoginFailed):
        lograft(oauth, text[:-40] + "A" * 40)
    log = oauth.server.log_path.read_text()
    if oauth.kind == "lograft":
        assert text.rpartition(".")[0] not in log
        assert "principal=User:alice mechanism=OAUTHBEARER" in log


@pytest.mark.interop
def test_franz_go_logs_in(oauth: OAuthServer) -> None:
    command = [str(go_scenario()), "login", oauth.address, TOPIC, "OAUTHBEARER", ""]
    assert run_json([*command, token(fresh())]) == {"produced": 1}
    with pytest.raises(AssertionError, match="ended with 1"):
        run_json([*command, token(fresh(aud="billing"))])


@pytest.mark.interop
def test_kafkajs_logs_in(oauth: OAuthServer) -> None:
    command = ["node", str(js_scripts() / "login.mjs"), oauth.address, TOPIC]
    assert run_json([*command, token(fresh())]) == {"produced": 1}
    with pytest.raises(AssertionError, match="ended with 1"):
        run_json([*command, token(fresh(aud="billing"))])


@pytest.mark.interop
def test_kafkas_tools_log_in(oauth: OAuthServer, tmp_path: Path) -> None:
    login = tmp_path / "client.properties"
    token_path = tmp_path / "token"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTHBEARER_MODULE} required;\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token_path}\n"
        "request.timeout.ms=10000\ndefault.api.timeout.ms=10000\n"
    )

    def list_topics(text: str) -> tuple[int, str]:
        token_path.write_text(text)
        jvm = (*SMALL_JVM, f"-D{ALLOWED_URLS}=file://{token_path}")
        command = [*java_command(jvm), "org.apache.kafka.tools.TopicCommand", "--list"]
        arguments = ["--bootstrap-server", oauth.address, "--command-config", str(login)]
        done = subprocess.run([*command, *arguments], capture_output=True, timeout=90)
        return done.returncode, (done.stdout + done.stderr).decode()

    code, text = list_topics(token(fresh()))
    assert code == 0, text
    code, text = list_topics(token(fresh(aud="billing")))
    assert code == 1
    assert "invalid_token" in text
