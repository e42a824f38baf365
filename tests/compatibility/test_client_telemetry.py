"""Client telemetry (KIP-714): subscriptions reach real clients, and their metrics reach the broker.
The same on Lograft and on an Apache Kafka that has a receiver for metrics."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest
from confluent_kafka import Producer

from lograft.client.blocking import Consumer as LograftConsumer
from lograft.client.blocking import Producer as LograftProducer
from lograft.model.errors import ErrorCode
from lograft.model.metrics import gather_all
from lograft.model.types import ZERO_UUID
from lograft.node import Node
from lograft.testing import Cluster
from lograft.wire.compression import Codec, compress
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from lograft.wire.otlp import Point, encode_metrics
from tests.compatibility import librdkafka
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.raw_requests import ask, connect_to
from tests.compatibility.servers import Kind, Server, java_command, kinds_under_test
from tests.support.waiting import wait_until
from tools.kafka_jars import KAFKA_VERSION, REPOSITORY, ensure_program, kafka_jars

pytestmark = [pytest.mark.clients]
CLIENT_METRICS = 16
TELEMETRY_KEYS = {71, 72}
METRICS = encode_metrics(
    [], [Point(f"m{number}", (), number) for number in range(40)], start_ns=1, now_ns=2
)
RECEIVER = REPOSITORY / "tools" / "kafka" / "TelemetryReceiver.java"


class Target(Protocol):
    """A server, and what clients have pushed to it."""

    @property
    def bootstrap(self) -> str: ...

    def pushed(self) -> dict[str, int]:
        """The decompressed size of what each client pushed last, by client id."""


class LograftTarget:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap_servers

    def pushed(self) -> dict[str, int]:
        def read(node: Node) -> dict[str, int]:
            broker = node.broker
            return {
                push.client["client_id"]: push.size_bytes
                for push in broker.telemetry.pushes(broker.clock.mono_ms())
            }

        found: dict[str, int] = self._cluster.call(1, read)
        return found

    def shown(self, client_id: str) -> dict[str, dict[str, str]]:
        """The labels of the series at /metrics that this client pushed, by name."""

        def read(node: Node) -> dict[str, dict[str, str]]:
            families = gather_all(node.collect_samples())
            found: dict[str, dict[str, str]] = {}
            for metric, series in families.by_metric.items():
                names = [label.name for label in metric.labels]
                for values in series:
                    labels = dict(zip(names, values, strict=True))
                    if labels.get("client_id") == client_id:
                        found[metric.name] = labels
            return found

        found: dict[str, dict[str, str]] = self._cluster.call(1, read)
        return found


class KafkaTarget(Server):
    classes: Path

    def java_command(self, options: tuple[str, ...]) -> list[str]:
        command = java_command(options, KAFKA_VERSION)
        return [*command[:-1], f"{command[-1]}:{self.classes}"]

    def pushed(self) -> dict[str, int]:
        lines = re.findall(r"PUSHED (\S+) (\d+) [1-9]", self.log_path.read_text())
        return {client_id: int(size) for client_id, size in lines}


@contextmanager
def started(kind: Kind, folder: Path) -> Iterator[Target]:
    if kind == "lograft":
        with Cluster() as cluster:
            yield LograftTarget(cluster)
        return
    ensure_program("javac", package="default-jdk-headless")
    classes = folder / "classes"
    jars = f"{kafka_jars(KAFKA_VERSION)}/*"
    subprocess.run(["javac", "-cp", jars, "-d", str(classes), str(RECEIVER)], check=True)
    server = KafkaTarget(
        "kafka",
        folder,
        {"metric.reporters": "TelemetryReceiver", "auto.create.topics.enable": "true"},
    )
    server.classes = classes
    with server.started():
        yield server


@pytest.fixture(scope="module", params=kinds_under_test())
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@contextmanager
def subscribed(target: Target, name: str, **settings: str) -> Iterator[None]:
    set_subscription(target, name, settings)
    try:
        yield
    finally:
        set_subscription(target, name, dict.fromkeys(settings))


def set_subscription(target: Target, name: str, settings: dict[str, Any]) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=CLIENT_METRICS,
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=setting.replace("_", "."),
                        config_operation=1 if value is None else 0,
                        value=value,
                    )
                    for setting, value in settings.items()
                ],
            )
        ]
    )
    with connect_to(target.bootstrap) as connection:
        response = ask(connection, request, 1)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 0, response


class Client:
    """Raw requests of one client instance."""

    def __init__(self, target: Target, client_id: str) -> None:
        self.connection = connect_to(target.bootstrap)
        self.client_id = client_id
        self.instance_id = ZERO_UUID
        self.subscription_id = 0

    def advertised(self) -> set[int]:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = ask(self.connection, request, 4, client_id=self.client_id)
        assert isinstance(response, ApiVersionsResponse)
        return {key.api_key for key in response.api_keys} & TELEMETRY_KEYS

    def ask(self) -> tuple[int, list[str], int]:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)
        response = ask(self.connection, request, 0, client_id=self.client_id)
        assert isinstance(response, GetTelemetrySubscriptionsResponse)
        if not response.error_code:
            self.instance_id = response.client_instance_id
            self.subscription_id = response.subscription_id
        return response.error_code, sorted(response.requested_metrics), response.push_interval_ms

    def push(self, **fields: Any) -> int:
        request = PushTelemetryRequest(
            **{
                "client_instance_id": self.instance_id,
                "subscription_id": self.subscription_id,
                "metrics": METRICS,
                **fields,
            }
        )
        response = ask(self.connection, request, 0, client_id=self.client_id)
        assert isinstance(response, PushTelemetryResponse)
        return response.error_code


@contextmanager
def raw_client(target: Target, client_id: str) -> Iterator[Client]:
    client = Client(target, client_id)
    with client.connection:
        yield client


def has_pushed(target: Target, client_id: str, size: int) -> bool:
    return target.pushed().get(client_id, 0) >= size


def check_labels(shown: dict[str, dict[str, str]]) -> None:
    """A client has one instance id, in Kafka's notation."""
    assert len({labels["client_instance_id"] for labels in shown.values()}) == 1
    assert all(len(labels["client_instance_id"]) == 22 for labels in shown.values())


def matches(target: Target, client_id: str, software: bool = True) -> tuple[list[str], int]:
    """What a new client gets; a subscription takes effect a moment after it was set."""
    with raw_client(target, client_id) as client:
        if software:
            client.advertised()
        _, metrics, interval_ms = client.ask()
        return metrics, interval_ms


def test_clients_get_the_subscriptions_that_match_them(target: Target) -> None:
    with (
        subscribed(target, "a", metrics="a.,b.", interval_ms="1000", match="client_id=mine.*"),
        subscribed(target, "b", metrics="b.,c.", interval_ms="2000", match="client_id=mine-2"),
        subscribed(target, "c", metrics="*", match="client_software_name=test,client_id=all"),
        subscribed(target, "d", metrics="d.", match="client_source_address=127\\.0\\.0\\.1"),
    ):
        wait_until(lambda: "d." in matches(target, "other")[0])
        assert matches(target, "other") == (["d."], 300_000)
        assert matches(target, "mine") == (["a.", "b.", "d."], 1000)
        assert matches(target, "mine-2") == (["a.", "b.", "c.", "d."], 1000)
        assert matches(target, "all") == (["*"], 300_000)
        assert matches(target, "all", software=False) == (["d."], 300_000)
    wait_until(lambda: matches(target, "mine") == ([], 300_000))


def test_requests_of_one_client(target: Target) -> None:
    with subscribed(target, "all", metrics="*", interval_ms="100000"):
        wait_until(lambda: matches(target, "any")[0] == ["*"])
        with raw_client(target, "first") as client:
            assert client.advertised() == TELEMETRY_KEYS
            granted = (0, ["*"], 100_000)
            assert client.ask() == granted
            assert client.instance_id != ZERO_UUID
            assert client.ask()[0] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            wrong = client.subscription_id + 1
            assert client.push(subscription_id=wrong) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            assert client.ask() == granted
            assert client.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert client.push(terminating=True) == 0
            assert client.push(terminating=True) == ErrorCode.INVALID_REQUEST
        with raw_client(target, "second") as client:
            assert client.ask() == granted
            assert client.push(compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            assert client.ask() == granted
        with raw_client(target, "third") as client:
            assert client.ask() == granted
            large = bytes(1_048_577)
            assert client.push(metrics=large) == ErrorCode.TELEMETRY_TOO_LARGE
        with raw_client(target, "fourth") as client:
            assert client.push(client_instance_id=ZERO_UUID) == ErrorCode.INVALID_REQUEST
            # Of a client that has asked another broker.
            assert client.push(client_instance_id=UUID(int=99)) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        for codec in Codec:
            with raw_client(target, f"codec-{codec}") as client:
                assert client.ask() == granted
                packed = compress(codec, METRICS)
                assert client.push(metrics=packed, compression_type=codec) == 0
                wait_until(partial(has_pushed, target, client.client_id, len(METRICS)))
        with raw_client(target, "malformed") as client:
            assert client.ask() == granted
            assert client.push(metrics=b"no metrics") == ErrorCode.INVALID_RECORD
        with raw_client(target, "bomb") as client:
            assert client.ask() == granted
            bomb = compress(Codec.ZSTD, bytes(2_000_000))
            # Kafka reports whatever happens after its own checks as INVALID_RECORD.
            refusals = {ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.INVALID_RECORD}
            assert client.push(metrics=bomb, compression_type=Codec.ZSTD) in refusals
            assert "bomb" not in target.pushed()


def test_librdkafka_pushes_its_metrics(target: Target) -> None:
    with subscribed(target, "all", metrics="*", interval_ms="200"):
        wait_until(lambda: matches(target, "any")[0] == ["*"])
        producer = Producer({"bootstrap.servers": target.bootstrap, "client.id": "librdkafka-test"})

        wait_until(partial(has_pushed, target, "librdkafka-test", 1000))
        if isinstance(target, LograftTarget):
            shown = target.shown("librdkafka-test")
            assert {"kafka_client_producer_connection_creation_total"} <= shown.keys(), shown
            check_labels(shown)
        producer.flush()


def test_lograft_pushes_its_metrics(target: Target) -> None:
    librdkafka.create_topic(target.bootstrap, "pushed")
    with subscribed(target, "all", metrics="*", interval_ms="200"):
        wait_until(lambda: matches(target, "any")[0] == ["*"])
        settings = {"bootstrap.servers": target.bootstrap}
        with LograftProducer(settings, client_id="lograft-producer") as producer:
            producer.send("pushed", b"v")
            wait_until(partial(has_pushed, target, "lograft-producer", 1000))
        with LograftConsumer(settings, client_id="lograft-consumer", group_id="g") as consumer:
            consumer.subscribe(["pushed"])
            consumer.poll(timeout_ms=100)
        # Its last push, when it closes, does not wait for the interval.
        wait_until(partial(has_pushed, target, "lograft-consumer", 1000))
        if isinstance(target, LograftTarget):
            shown = target.shown("lograft-producer")
            assert shown["kafka_client_producer_topic_record_send_total"]["topic"] == "pushed"
            check_labels(shown)


@pytest.mark.interop
def test_java_pushes_its_metrics(target: Target, java_tools: JavaTools) -> None:
    """A consumer that ends pushes its last metrics, whatever the interval."""
    librdkafka.create_topic(target.bootstrap, "telemetry")
    with subscribed(target, "all", metrics="*", interval_ms="200"):
        wait_until(lambda: matches(target, "any")[0] == ["*"])
        java_tools.run(
            "ConsoleConsumer",
            *("--bootstrap-server", target.bootstrap, "--topic", "telemetry"),
            *("--timeout-ms", "2000", "--command-property", "client.id=java-test"),
        )
        wait_until(partial(has_pushed, target, "java-test", 1000))
        if isinstance(target, LograftTarget):
            shown = target.shown("java-test")
            fetched = shown["kafka_client_consumer_fetch_manager_fetch_total"]
            assert fetched["client_id"] == "java-test"
            assert shown["kafka_client_consumer_node_request_total"]["node_id"]
            check_labels(shown)


@pytest.mark.interop
def test_the_client_metrics_tool(target: Target, java_tools: JavaTools) -> None:
    def run(*arguments: str) -> list[str]:
        done = java_tools.run(
            "ClientMetricsCommand", "--bootstrap-server", target.bootstrap, *arguments
        )
        assert done.code == 0, done.text
        return done.lines

    settings = ("--metrics", "org.apache.kafka.producer.", "--interval", "5000")
    run("--alter", "--name", "tool", *settings, "--match", "client_id=of the tool")
    expected = (["org.apache.kafka.producer."], 5000)
    wait_until(lambda: matches(target, "of the tool") == expected)
    assert run("--list")[0] == "tool"
    assert run("--describe", "--name", "tool")[:4] == [
        "Client metrics configs for tool are:",
        "  interval.ms=5000",
        "  match=client_id=of the tool",
        "  metrics=org.apache.kafka.producer.",
    ]
    run("--delete", "--name", "tool")
    wait_until(lambda: "tool" not in run("--list"))
    wait_until(lambda: matches(target, "of the tool") == ([], 300_000))


def test_lograft_advertises_telemetry_only_while_it_is_wanted() -> None:
    with Cluster() as cluster:
        target = LograftTarget(cluster)

        def is_advertised() -> bool:
            with raw_client(target, "any") as client:
                return client.advertised() == TELEMETRY_KEYS

        assert not is_advertised()
        with subscribed(target, "all", metrics="*"):
            wait_until(is_advertised)
        wait_until(lambda: not is_advertised())
    with (
        Cluster(properties={"lograft.client.telemetry": "true"}) as cluster,
        raw_client(LograftTarget(cluster), "any") as client,
    ):
        assert client.advertised() == TELEMETRY_KEYS
