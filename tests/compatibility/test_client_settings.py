"""The facts about Kafka's client settings are those of the jar."""

import subprocess

import pytest

from tests.compatibility.servers import SMALL_JVM, java_command
from tests.unit.client.test_kafka_settings import KAFKA_SETTINGS
from tools.kafka_jars import REPOSITORY, ensure_program

pytestmark = pytest.mark.interop


def test_the_facts_about_settings_are_those_of_the_jar() -> None:
    ensure_program("javac", package="default-jdk-headless")
    program = REPOSITORY / "tools" / "kafka" / "ClientSettings.java"
    shown = subprocess.run(
        [*java_command(SMALL_JVM), str(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert shown == KAFKA_SETTINGS.read_text()
