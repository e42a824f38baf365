"""Lograft's authorizer decides as Kafka's StandardAuthorizer, which runs in a JVM of its own.

    python -m tests.compatibility.test_authorizer

records decisions of Kafka for tests/golden/test_acl_decisions.py.
"""

import random
import subprocess
from collections.abc import Sequence
from typing import Final

import pytest

from tests.compatibility.servers import SMALL_JVM, java_command
from tests.golden.test_acl_decisions import write_decisions
from tests.support.acl_worlds import answer, random_line
from tools.kafka_jars import REPOSITORY

pytestmark = pytest.mark.clients

PROGRAM: Final = REPOSITORY / "tools" / "kafka" / "Authorize.java"
SETS: Final = 100_000
SETS_PER_RUN: Final = 25_000
RECORDED: Final = 1_500
JAVA_SECONDS_MAX: Final = 300


def decisions_of_kafka(lines: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [*java_command(SMALL_JVM), str(PROGRAM)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=JAVA_SECONDS_MAX,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("part", range(SETS // SETS_PER_RUN))
def test_decisions_are_those_of_kafka(part: int) -> None:
    chance = random.Random(part)
    lines = [random_line(chance) for _ in range(SETS_PER_RUN)]
    different = [
        (line, theirs, ours)
        for line, theirs in zip(lines, decisions_of_kafka(lines), strict=True)
        if (ours := answer(line)) != theirs
    ]
    assert different[:3] == []


if __name__ == "__main__":
    source = random.Random("recorded")
    recorded = [random_line(source) for _ in range(RECORDED)]
    write_decisions(recorded, decisions_of_kafka(recorded))
