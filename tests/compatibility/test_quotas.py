"""Client quotas with real clients and Kafka's own tools, on Lograft and on Apache Kafka."""

import random
import subprocess
import time
from collections.abc import Callable

import confluent_kafka
import pytest

from tests.compatibility.java_tools import JavaTools
from tests.compatibility.servers import Server
from tests.golden.quota_questions import find_differences, make_questions
from tools.kafka_jars import REPOSITORY, kafka_jars

pytestmark = pytest.mark.interop

SETS: int = 2_000
RATE: int = 500_000
#: The first windows allow a burst, which then leaves the windows.
BURST_SECONDS: int = 11
SECONDS: int = 33


def test_random_quotas_are_those_of_kafkas_classes() -> None:
    questions = list(make_questions(random.randrange(1 << 32), SETS))
    command = ["java", "-cp", f"{kafka_jars()}/*", str(REPOSITORY / "tools" / "QuotaOracle.java")]
    answers = subprocess.run(
        command,
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert find_differences(questions, answers) == []


def alter(server: Server, java_tools: JavaTools, *options: str) -> tuple[int, str]:
    run = java_tools.run(
        "ConfigCommand", "--bootstrap-server", server.bootstrap, "--alter", *options
    )
    return run.code, run.text


def describe(server: Server, java_tools: JavaTools, *options: str) -> list[str]:
    run = java_tools.run(
        "ConfigCommand", "--bootstrap-server", server.bootstrap, "--describe", *options
    )
    assert run.code == 0, run.text
    return sorted(line for line in run.lines if line)


def test_kafka_configs_sets_and_shows_quotas(server: Server, java_tools: JavaTools) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    clients = ("--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
    for options in (
        (*alice, "--add-config", "producer_byte_rate=1024,request_percentage=12.5"),
        (*alice, *clients, "--add-config", "consumer_byte_rate=2048"),
        (*address, "--add-config", "connection_creation_rate=10"),
    ):
        assert alter(server, java_tools, *options)[0] == 0
    (line,) = describe(server, java_tools, *alice)
    begin, _, values = line.partition(" are ")
    assert begin == "Quota configs for user-principal 'alice'"
    assert sorted(values.split(", ")) == ["producer_byte_rate=1024.0", "request_percentage=12.5"]
    assert describe(server, java_tools, *alice, *clients) == [
        "Quota configs for user-principal 'alice', the default client-id are"
        " consumer_byte_rate=2048.0"
    ]
    assert describe(server, java_tools, *address) == [
        "Quota configs for ip '10.9.8.7' are connection_creation_rate=10.0"
    ]
    for options, reason in (
        ((*alice, "--add-config", "producer_byte_rate=-1"), "must be greater than 0"),
        ((*alice, "--add-config", "request_percentage=0"), "must be greater than 0"),
        ((*alice, "--add-config", "connection_creation_rate=1"), "connection_creation_rate"),
    ):
        code, text = alter(server, java_tools, *options)
        assert (code, reason in text) == (1, True), text
    for options in (
        (*alice, "--delete-config", "producer_byte_rate,request_percentage"),
        (*alice, *clients, "--delete-config", "consumer_byte_rate"),
        (*address, "--delete-config", "connection_creation_rate"),
    ):
        assert alter(server, java_tools, *options)[0] == 0
    assert describe(server, java_tools, "--entity-type", "ips") == []


def measure_rate(server: Server, client_id: str) -> float:
    """Returns the bytes per second of a producer that sends as fast as it may."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": client_id,
            "queue.buffering.max.kbytes": 1_000,
            "batch.size": 50_000,
            "linger.ms": 5,
            "message.timeout.ms": 120_000,
        }
    )
    delivered: list[tuple[float, int]] = []
    record = bytes(9_900)

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        # Those that are still queued at the end are not sent.
        if error is None:
            delivered.append((time.monotonic(), len(record) + 100))

    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        try:
            producer.produce("quotas", record, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()
    producer.flush(10)
    counted = [size for at, size in delivered if BURST_SECONDS <= at - begin < SECONDS]
    return sum(counted) / (SECONDS - BURST_SECONDS)


def test_a_real_producer_writes_at_its_quota(server: Server, java_tools: JavaTools) -> None:
    entity = ("--entity-type", "clients", "--entity-name", "limited")
    assert alter(server, java_tools, *entity, "--add-config", f"producer_byte_rate={RATE}")[0] == 0
    assert measure_rate(server, "limited") == pytest.approx(RATE, rel=0.05)


def test_quotas_in_a_folder_of_kafka_are_enforced(
    new_server: Callable[..., Server], java_tools: JavaTools
) -> None:
    first = new_server("kafka")
    entity = ("--entity-type", "clients", "--entity-name", "limited")
    with first.started():
        assert (
            alter(first, java_tools, *entity, "--add-config", f"producer_byte_rate={RATE}")[0] == 0
        )
    second = new_server("lograft").using_data_of(first)
    with second.started():
        assert describe(second, java_tools, *entity) == [
            f"Quota configs for client-id 'limited' are producer_byte_rate={float(RATE)}"
        ]
        assert measure_rate(second, "limited") == pytest.approx(RATE, rel=0.05)
    assert "client quota" not in second.log_path.read_text()
