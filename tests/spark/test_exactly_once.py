"""Exactly-once writes with crashes: tasks and the driver are killed at several points, and every
row is in the topic exactly once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.reading import read_committed_values
from tests.spark.topics import Topics

NewTopic = Callable[..., str]
ROWS = 400
COPY = Path(__file__).with_name("copy_job.py")


class Copy:
    """A program that copies a topic to another one in two micro-batches and can kill itself at a
    given point."""

    def __init__(self, topics: Topics, new_topic: NewTopic, folder: Path) -> None:
        self.topics = topics
        self.origin, self.target = new_topic(2), new_topic(2)
        self.folder = folder
        self.values = [f"{number:04}" for number in range(ROWS)]
        for partition in (0, 1):
            topics.fill(self.origin, self.values[partition::2], partition=partition)

    def run(self, kill_point: str) -> int:
        arguments = [self.topics.bootstrap, self.origin, self.target, str(self.folder), kill_point]
        result = subprocess.run(
            [sys.executable, str(COPY), *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        self.output = result.stdout + result.stderr
        return result.returncode

    def copied(self) -> list[str]:
        return read_committed_values(self.topics, self.target, 2)


@pytest.fixture
def copy(topics: Topics, new_topic: NewTopic, tmp_path: Path) -> Copy:
    return Copy(topics, new_topic, tmp_path)


#: Each kill point starts Spark twice, so `make test` covers only the hardest one.
KILL_POINTS = [
    "driver-half-way",
    *(
        pytest.param(point, marks=pytest.mark.chaos)
        for point in ("task", "driver-before-commit", "driver-after")
    ),
]


@pytest.mark.parametrize("kill_point", KILL_POINTS)
def test_every_row_is_written_once_despite_a_crash(copy: Copy, kill_point: str) -> None:
    code = copy.run(kill_point)
    if kill_point == "task":
        # Spark repeats a task whose process has died.
        assert code == 0, copy.output
    else:
        assert code == -signal.SIGKILL, copy.output
        seen = copy.copied()
        if kill_point == "driver-before-commit":
            assert seen == []
        if kill_point == "driver-half-way":
            # Possibly empty: an open transaction may precede the committed rows.
            assert len(seen) < ROWS
            assert len(set(seen)) == len(seen)
        assert copy.run("none") == 0, copy.output
    assert copy.copied() == copy.values


def test_repeated_named_write_is_skipped(
    spark: SparkSession, topics: Topics, new_topic: NewTopic
) -> None:
    """foreachBatch needs this, because Spark may call it again with the same batch."""
    target = new_topic(1)
    frame = spark.sql("select cast(id as string) value from range(50)")
    for version in (0, 0, 1):
        frame.write.format("lograft").mode("append").options(
            **{"kafka.bootstrap.servers": topics.bootstrap},
            topic=target,
            delivery="exactly-once",
            txnAppId=f"repeated-{target}",
            txnVersion=version,
        ).save()
    assert read_committed_values(topics, target, 1) == sorted(
        [str(number) for number in range(50)] * 2
    )
