"""Kafka's client settings and client metrics, as recorded in this repository, are those of the
jar."""

import subprocess

import pytest

from lograft.testing import Cluster
from tests.compatibility.servers import SMALL_JVM, java_command
from tests.unit.client.test_kafka_settings import KAFKA_SETTINGS
from tools.generate_client_metrics import KAFKA_METRICS
from tools.kafka_jars import REPOSITORY, ensure_program

pytestmark = pytest.mark.interop


def run_program(name: str, *arguments: str) -> str:
    ensure_program("javac", package="default-jdk-headless")
    program = REPOSITORY / "tools" / "kafka" / name
    return subprocess.run(
        [*java_command(SMALL_JVM), str(program), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


def test_the_facts_about_settings_are_those_of_the_jar() -> None:
    assert run_program("ClientSettings.java") == KAFKA_SETTINGS.read_text()


def test_the_facts_about_metrics_are_those_of_the_jar() -> None:
    with Cluster() as cluster:
        shown = run_program("ClientMetrics.java", cluster.bootstrap_servers)
    assert shown == KAFKA_METRICS.read_text()
