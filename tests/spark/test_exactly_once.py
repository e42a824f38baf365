"""The sink, exactly once: tasks, the driver and a commit half way are killed, and every row is
there once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.reading import committed_values
from tests.spark.topics import Topics

NewTopic = Callable[..., str]
ROWS = 400
COPY = Path(__file__).with_name("copy_job.py")


class Copy:
    """A query that copies a topic into another one in two micro-batches, as a program of its own
    that can be told to kill itself somewhere."""

    def __init__(self, topics: Topics, new_topic: NewTopic, folder: Path) -> None:
        self.topics = topics
        self.origin, self.target = new_topic(2), new_topic(2)
        self.folder = folder
        self.values = [f"{number:04}" for number in range(ROWS)]
        for partition in (0, 1):
            topics.fill(self.origin, self.values[partition::2], partition=partition)

    def run(self, dies: str) -> int:
        arguments = [self.topics.bootstrap, self.origin, self.target, str(self.folder), dies]
        done = subprocess.run(
            [sys.executable, str(COPY), *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        self.output = done.stdout + done.stderr
        return done.returncode

    def copied(self) -> list[str]:
        return committed_values(self.topics, self.target, 2)


@pytest.fixture
def copy(topics: Topics, new_topic: NewTopic, tmp_path: Path) -> Copy:
    return Copy(topics, new_topic, tmp_path)


#: Each death is two more starts of Spark: `make test` has the hardest one.
DEATHS = [
    "driver-half-way",
    *(
        pytest.param(one, marks=pytest.mark.chaos)
        for one in ("task", "driver-before-commit", "driver-after")
    ),
]


@pytest.mark.parametrize("dies", DEATHS)
def test_every_row_is_there_once(copy: Copy, dies: str) -> None:
    code = copy.run(dies)
    if dies == "task":
        # Spark tries a task again that has lost its process.
        assert code == 0, copy.output
    else:
        assert code == -signal.SIGKILL, copy.output
        seen = copy.copied()
        if dies == "driver-before-commit":
            assert seen == []
        if dies == "driver-half-way":
            # Perhaps nothing: what was committed lies behind what is still open.
            assert len(seen) < ROWS
            assert len(set(seen)) == len(seen)
        assert copy.run("nobody") == 0, copy.output
    assert copy.copied() == copy.values


def test_the_same_write_asked_for_again_is_known(
    spark: SparkSession, topics: Topics, new_topic: NewTopic
) -> None:
    """What foreachBatch needs: Spark may call it with a batch that it has had."""
    target = new_topic(1)
    frame = spark.sql("select cast(id as string) value from range(50)")
    for version in (0, 0, 1):
        frame.write.format("lograft").mode("append").options(
            **{"kafka.bootstrap.servers": topics.bootstrap},
            topic=target,
            delivery="exactly-once",
            txnAppId=f"again-{target}",
            txnVersion=version,
        ).save()
    assert committed_values(topics, target, 1) == sorted([str(one) for one in range(50)] * 2)
